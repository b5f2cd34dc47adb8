package place

import (
	"cmp"
	"time"
)

// MovesConfig bounds the pace of notifying agents that their proxies have another owner. Each notified proxy makes a
// new connection to its owner. A zero field means its default.
type MovesConfig struct {
	Most  float64 // largest rate of moves per second to one replica, from all others together; 0: 100
	Least float64 // smallest rate of notifications per second, even above Most; 0: 10
	Part  float64 // smallest fraction of the streams to notify per second, even above Most; 0: 0.01
	Off   bool    // all agents are notified at once, to measure the effect of the loop
}

// MovesInput is the input of one step.
type MovesInput struct {
	Now     time.Time
	Left    int           // streams whose agents are not notified yet
	Streams int           // of this replica
	Peers   int           // other ready replicas; they share Most, since all may send proxies to one replica
	Wait    time.Duration // the 90th percentile of goroutines' recent wait for a processor (obs.RunQueue)
	By      time.Time     // deadline for all notifications while this replica leaves; zero: no deadline
}

// Moves decides how many agents to notify now. A replica that joins or leaves may change the owner of a quarter of a
// fleet at once, and the moves delay the pushes to other streams. So the pace starts slowly, rises while goroutines do
// not wait for processors, and falls while they wait. Load by other processes counts, too. Unlike
// golang.org/x/time/rate, Moves accumulates no unused moves, and returns a number instead of admitting single moves. It
// has no clock. One goroutine calls it.
type Moves struct {
	cfg    MovesConfig
	last   time.Time
	rate   float64 // notifications per second
	tokens float64
}

// Waits for a processor above which the pace falls, and below which it rises.
const (
	movesLong  = 2 * time.Millisecond
	movesShort = time.Millisecond
)

// movesEvery is the interval of Moves.Step while agents are to be notified.
const movesEvery = 100 * time.Millisecond

// NewMoves returns a Moves without history.
func NewMoves(cfg MovesConfig) *Moves {
	cfg.Most = cmp.Or(cfg.Most, 100)
	cfg.Least = cmp.Or(cfg.Least, 10)
	cfg.Part = cmp.Or(cfg.Part, .01)
	return &Moves{cfg: cfg}
}

// StepEvery returns the interval of Step while agents are to be notified: 100 ms.
func (m *Moves) StepEvery() time.Duration { return movesEvery }

// Step returns the number of agents to notify now, at most Left. Call it once per StepEvery while agents remain to be
// notified. After a pause of more than a second the pace starts again. With MovesConfig.Off it returns Left.
func (m *Moves) Step(in MovesInput) int {
	if m.cfg.Off {
		return in.Left
	}
	elapsed := max(in.Now.Sub(m.last), 0)
	if m.last = in.Now; elapsed > time.Second { // the last call was for earlier moves
		m.rate, m.tokens, elapsed = 0, 0, movesEvery
	}
	elapsed = min(elapsed, 2*movesEvery)
	least := max(m.cfg.Least, m.cfg.Part*float64(in.Streams))
	most := max(m.cfg.Most/float64(max(in.Peers, 1)), least)
	switch {
	case in.Wait > movesLong:
		m.rate *= .75
	case in.Wait < movesShort:
		m.rate *= 1.25
	}
	m.rate = min(max(m.rate, least), most)
	now := m.rate
	if !in.By.IsZero() {
		left := max(in.By.Sub(in.Now), movesEvery)
		now = max(now, float64(in.Left)/left.Seconds())
	}
	m.tokens += now * elapsed.Seconds()
	n := min(int(m.tokens), in.Left)
	m.tokens = min(m.tokens-float64(n), 1)
	return n
}
