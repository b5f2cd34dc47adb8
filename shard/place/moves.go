package place

import (
	"cmp"
	"time"
)

// MovesConfig bounds how fast a replica notifies agents that another replica owns their proxies. After the
// notification, an agent moves the proxy's stream: it makes a new connection to the owner. A zero field means its
// default.
type MovesConfig struct {
	Most  float64 // largest number of moves per second to one replica, from all others together; default 100
	Least float64 // smallest number of notifications per second, even if it exceeds Most; default 10
	Part  float64 // smallest fraction of the streams to notify per second, even if it exceeds Most; default 0.01
	Off   bool    // all agents are notified at once, to measure the effect of Moves
}

// MovesInput is the input of one step.
type MovesInput struct {
	Now     time.Time
	Left    int           // streams whose agents are not notified yet
	Streams int           // streams of this replica
	Peers   int           // other ready replicas; Most is divided by them, since all may send proxies to one replica
	Wait    time.Duration // 90th percentile of the recent time that goroutines waited for a processor (obs.RunQueue)
	By      time.Time     // deadline for all notifications, set while this replica leaves; zero: no deadline
}

// Moves decides how many agents to notify now. When a replica joins or leaves, a quarter of all proxies may change
// owner at once. Their moves delay the pushes to other streams. So the pace starts slowly. The pace rises while
// goroutines do not wait for processors, and falls while they wait. Load by other processes also lowers the pace. In
// contrast to golang.org/x/time/rate, unused notifications are not saved, and Step returns a number. Moves reads no
// clock (MovesInput.Now). Only one goroutine may call it.
type Moves struct {
	cfg    MovesConfig
	last   time.Time
	rate   float64 // notifications per second
	tokens float64
}

// The pace falls if MovesInput.Wait is above movesLong, and rises if it is below movesShort.
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

// Step returns the number of agents to notify now, at most MovesInput.Left. Call it once per StepEvery while agents are
// to be notified. If the last call was more than a second ago, the pace starts slowly again. With MovesConfig.Off, Step
// returns MovesInput.Left.
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
