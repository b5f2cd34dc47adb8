package place

import (
	"cmp"
	"time"
)

// MovesConfig bounds the pace at which agents are notified that their proxies belong to another replica: each then makes a new
// connection there. The zero value of a field is its default.
type MovesConfig struct {
	Most  float64 // moves a second to one replica, of all others together; 100
	Least float64 // notified a second however full the machine is; 10, as streams are sent away (DrainConfig.Rate)
	Part  float64 // and at least this part of the streams; 0.01: who is relieved is often full
	Off   bool    // all are notified at once: to measure what the loop is worth
}

// MovesInput is what a step sees.
type MovesInput struct {
	Now     time.Time
	Left    int           // streams whose agents are still to be notified
	Streams int           // here
	Peers   int           // other replicas that are ready: all of them may send to the same one
	Wait    time.Duration // how long goroutines waited for a processor of late, what nine in ten waited less than (obs.RunQueue)
	By      time.Time     // all are to be notified by then: this replica leaves; zero: no hurry
}

// Moves decides how many agents to notify now. A replica that joins or leaves gives a quarter of a fleet another owner in one
// moment; what that costs is paid by the streams that push meanwhile. So it starts slowly, is faster while goroutines do not
// wait for processors, and slower while they do, whoever fills the machine. It has no clock; one goroutine calls it. It is not a limiter of golang.org/x/time/rate: nothing is saved up here, and the step asks how many at
// once, not whether one may.
type Moves struct {
	cfg    MovesConfig
	last   time.Time
	rate   float64 // notified a second
	tokens float64
}

// The pace of moves: where goroutines wait longer than that, it is slower, and where they wait shorter, faster.
const (
	movesLong  = 2 * time.Millisecond
	movesShort = time.Millisecond
)

// movesEvery is how often Moves.Step is to be called while somebody is to be notified.
const movesEvery = 100 * time.Millisecond

// NewMoves makes one that has notified nobody yet.
func NewMoves(cfg MovesConfig) *Moves {
	cfg.Most = cmp.Or(cfg.Most, 100)
	cfg.Least = cmp.Or(cfg.Least, 10)
	cfg.Part = cmp.Or(cfg.Part, .01)
	return &Moves{cfg: cfg}
}

// StepEvery is how often Step is to be called while somebody is to be notified.
func (m *Moves) StepEvery() time.Duration { return movesEvery }

// Step says how many to notify now. What is not used is not saved up.
func (m *Moves) Step(in MovesInput) int {
	if m.cfg.Off {
		return in.Left
	}
	elapsed := max(in.Now.Sub(m.last), 0)
	if m.last = in.Now; elapsed > time.Second { // those were other moves
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
