package relay

import (
	"sync"
	"time"
)

const (
	paceBase = 100 * time.Millisecond // pause after the first failure
	// paceMax is the longest pause before a dial. It is long enough to spare an unreachable control plane, and short
	// enough to find the control plane soon after its return.
	paceMax = 2 * time.Second
	// healthyAfter is the age from which a stream without responses counts as healthy. If nothing has changed since the
	// last stream, the control plane sends no response. So silence alone does not count as a failure.
	healthyAfter = 3 * time.Second
)

// pacer spaces dials to an unreachable control plane, for all streams together. The pauses grow exponentially. Each
// pause is shortened at random, by at most half.
type pacer struct {
	mu       sync.Mutex
	random   func() float64
	failures int
	next     time.Time
}

func newPacer(random func() float64) *pacer { return &pacer{random: random} }

// wait returns the time from now until the next dial may begin. It is 0 if the dial may begin at once.
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

// moveForget is the time without moves and failed moves after which the pause between moves has its initial length
// again.
const moveForget = 5 * time.Minute

// movePace spaces the moves of one stream between replicas, including failed moves. Replicas do not all learn at the
// same time which replica owns a proxy. So two replicas may send a proxy back and forth. The growing pauses make these
// moves rarer.
type movePace struct {
	random    func() float64
	base, max time.Duration
	step      time.Duration
	last      time.Time
	next      time.Time
}

// open reports whether a move may begin.
func (p *movePace) open(now time.Time) bool { return !now.Before(p.next) }

// space sets the pause after a move or a failed move. The pause doubles each time, up to p.max. It is then shortened at
// random, by at most half.
func (p *movePace) space(now time.Time) {
	if p.step *= 2; p.step == 0 || now.Sub(p.last) > moveForget {
		p.step = p.base
	}
	p.step = min(p.step, p.max)
	p.last = now
	p.later(now.Add(p.step/2 + time.Duration(p.random()*float64(p.step/2))))
}

// spread delays the next move by a random time of up to d.
func (p *movePace) spread(now time.Time, d time.Duration) {
	p.later(now.Add(time.Duration(p.random() * float64(d))))
}

// later postpones the next move to the given time. It has no effect if the next move is already later.
func (p *movePace) later(at time.Time) {
	if at.After(p.next) {
		p.next = at
	}
}
