package relay

import (
	"sync"
	"time"
)

const (
	paceBase = 100 * time.Millisecond
	// paceMax is also the longest that a stream of Envoy is held before it is dialled for: long enough to spare a dead
	// control plane, short enough that its return is seen at once.
	paceMax = 2 * time.Second
	// healthyAfter is how long a silent stream must live to count as good: a reconnect where nothing changed is answered
	// by nothing, so silence alone proves neither.
	healthyAfter = 3 * time.Second
)

// pacer spaces dials to a control plane that is away: exponential, jittered over the upper half of each step, shared by
// all streams.
type pacer struct {
	mu       sync.Mutex
	random   func() float64
	failures int
	next     time.Time
}

func newPacer(random func() float64) *pacer { return &pacer{random: random} }

// wait is how long a dial at now has to be held back.
func (p *pacer) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.next.Sub(now))
}

func (p *pacer) failed(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	step := paceMax
	if p.failures < 5 { // 0.1, 0.2, 0.4, 0.8, 1.6 s, then the maximum
		step = paceBase << p.failures
		p.failures++
	}
	p.next = now.Add(step/2 + time.Duration(p.random()*float64(step/2)))
}

func (p *pacer) worked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures, p.next = 0, time.Time{}
}

// moveForget is how long after the last move or failure the next one counts as the first.
const moveForget = 5 * time.Minute

// movePace spaces moves of one stream, the failed and the done: replicas that send a proxy to each other, while they hear
// of a new ring one after the other, see it less and less often.
type movePace struct {
	random    func() float64
	base, max time.Duration
	step      time.Duration
	last      time.Time
	next      time.Time
}

func (p *movePace) open(now time.Time) bool { return !now.Before(p.next) }

// space is called after each move and each failure.
func (p *movePace) space(now time.Time) {
	if p.step *= 2; p.step == 0 || now.Sub(p.last) > moveForget {
		p.step = p.base
	}
	p.step = min(p.step, p.max)
	p.last = now
	p.later(now.Add(p.step/2 + time.Duration(p.random()*float64(p.step/2))))
}

// spread puts the next move off by up to d.
func (p *movePace) spread(now time.Time, d time.Duration) {
	p.later(now.Add(time.Duration(p.random() * float64(d))))
}

func (p *movePace) later(at time.Time) {
	if at.After(p.next) {
		p.next = at
	}
}
