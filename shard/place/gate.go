package place

import (
	"container/list"
	"time"
)

// gate is the queue of joins: first come, first served, by two buckets, of cost and of number. It has no clock, and is
// guarded by Admission's lock. The buckets are not limiters of golang.org/x/time/rate: a join takes from both or from neither, what is taken
// may be more than there is (a dear join is let in, and paid for afterwards), and the queue asks how long it would wait without joining it.
type gate struct {
	rate    float64 // cost a second; 0: nothing now
	most    float64 // joins a second; 0: no limit
	longest time.Duration
	size    int
	full    bool // memory is: few may wait, for each holds its first request

	tokens      float64 // of cost; may be below 0 after a dear join
	numbers     float64 // of joins
	filled      time.Time
	waiting     list.List // of *ticket
	waitingCost float64   // cost of those that wait
}

// ticket is one join.
type ticket struct {
	cost    float64
	came    time.Time
	open    chan struct{} // closed: it may go on, or not; see refused
	refused bool
	element *list.Element // nil: it does not wait
}

// burst is how long nothing may come for what comes then to be let in at once.
const burst = 200 * time.Millisecond

// fewWait is how many may wait where memory is full.
const fewWait = 32

// fill adds the tokens of the time that has passed.
func (g *gate) fill(now time.Time) {
	elapsed := max(now.Sub(g.filled).Seconds(), 0)
	if g.filled.IsZero() {
		elapsed = burst.Seconds()
	}
	g.filled = now
	g.tokens = min(g.tokens+g.rate*elapsed, max(g.rate*burst.Seconds(), CostFull))
	g.numbers = min(g.numbers+g.most*elapsed, max(g.most*burst.Seconds(), 1))
}

// take lets one in where there is something left.
func (g *gate) take(cost float64) bool {
	if g.rate <= 0 || g.tokens <= 0 || g.most > 0 && g.numbers < 1 {
		return false
	}
	g.tokens -= cost
	g.numbers--
	return true
}

// expected is how long one that comes now would wait, as the rate is.
func (g *gate) expected() time.Duration {
	seconds := 0.
	if g.rate > 0 {
		seconds = max(g.waitingCost-g.tokens, 0) / g.rate
	}
	if g.most > 0 {
		seconds = max(seconds, (float64(g.waiting.Len())-g.numbers)/g.most)
	}
	return time.Duration(seconds * float64(time.Second))
}

// arrive lets one in, lets it wait, or refuses it: where the queue or the memory is full, or it would wait for too long.
func (g *gate) arrive(now time.Time, t *ticket) {
	g.fill(now)
	t.came, t.open = now, make(chan struct{})
	switch {
	case g.waiting.Len() == 0 && g.take(t.cost):
		close(t.open)
	case g.full && g.waiting.Len() >= fewWait, g.waiting.Len() >= g.size, g.expected() > g.longest:
		t.refused = true
		close(t.open)
	default:
		t.element = g.waiting.PushBack(t)
		g.waitingCost += t.cost
	}
}

// leave takes one out that does not wait any longer.
func (g *gate) leave(t *ticket) {
	if t.element == nil {
		return
	}
	g.waiting.Remove(t.element)
	t.element = nil
	if g.waitingCost -= t.cost; g.waiting.Len() == 0 {
		g.waitingCost = 0
	}
}

// advance lets in who may go now and refuses who has waited for too long; it says when to look again; zero: nobody waits.
func (g *gate) advance(now time.Time) (next time.Time) {
	g.fill(now)
	for e := g.waiting.Front(); e != nil; e = g.waiting.Front() {
		t := e.Value.(*ticket)
		switch {
		case g.take(t.cost):
		case now.Sub(t.came) > g.longest:
			t.refused = true
		default:
			return now.Add(max(min(g.soon(), t.came.Add(g.longest).Sub(now)+time.Millisecond, time.Second), time.Millisecond))
		}
		g.leave(t)
		close(t.open)
	}
	return time.Time{}
}

// soon is when there is something to take again.
func (g *gate) soon() time.Duration {
	if g.rate <= 0 {
		return time.Second
	}
	seconds := max(-g.tokens, 0) / g.rate
	if g.most > 0 {
		seconds = max(seconds, (1-g.numbers)/g.most)
	}
	return time.Duration(seconds*float64(time.Second)) + time.Millisecond
}
