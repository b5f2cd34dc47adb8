package place

import (
	"container/list"
	"time"
)

// gate is the queue of joins. It admits joins in the order of their arrival, by two token buckets: one for the cost of
// joins, one for their number. It has no clock. The lock of Admission guards it. The buckets differ from
// golang.org/x/time/rate. A join takes tokens from both buckets or from neither. An expensive join may take more tokens
// than there are, and later joins wait for the missing tokens. The wait of a join is computed without taking a token.
type gate struct {
	rate    float64 // cost per second; 0: no joins now
	most    float64 // joins per second; 0: no limit
	longest time.Duration
	size    int
	full    bool // memory is full: few joins may wait, since each holds its first request

	tokens      float64 // of cost; may be below 0 after an expensive join
	numbers     float64 // of joins
	filled      time.Time
	waiting     list.List // of *ticket
	waitingCost float64   // of the waiting joins
}

// ticket is one join.
type ticket struct {
	cost    float64
	came    time.Time
	open    chan struct{} // closed when the join is admitted or refused
	refused bool
	element *list.Element // in gate.waiting; nil: the join does not wait
}

// burst is the idle time whose tokens are saved for joins that come together.
const burst = 200 * time.Millisecond

// fewWait bounds the waiting joins while memory is full.
const fewWait = 32

// fill adds the tokens of the elapsed time.
func (g *gate) fill(now time.Time) {
	elapsed := max(now.Sub(g.filled).Seconds(), 0)
	if g.filled.IsZero() {
		elapsed = burst.Seconds()
	}
	g.filled = now
	g.tokens = min(g.tokens+g.rate*elapsed, max(g.rate*burst.Seconds(), CostFull))
	g.numbers = min(g.numbers+g.most*elapsed, max(g.most*burst.Seconds(), 1))
}

// take removes the tokens for one join. It returns false, and removes no tokens, if there are not enough.
func (g *gate) take(cost float64) bool {
	if g.rate <= 0 || g.tokens <= 0 || g.most > 0 && g.numbers < 1 {
		return false
	}
	g.tokens -= cost
	g.numbers--
	return true
}

// expected returns the wait of a join that comes now, at the present rate; at rate 0 it is longest.
func (g *gate) expected() time.Duration {
	if g.rate <= 0 {
		return g.longest
	}
	seconds := max(g.waitingCost-g.tokens, 0) / g.rate
	if g.most > 0 {
		seconds = max(seconds, (float64(g.waiting.Len())-g.numbers)/g.most)
	}
	return time.Duration(seconds * float64(time.Second))
}

// arrive admits, queues or refuses a join. It refuses if the queue is full, if memory is full and fewWait joins wait,
// or if the wait would be too long.
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

// leave removes a join from the queue, if it is there.
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

// advance admits due joins, and refuses joins after a wait of longest. It returns the time of its next call; zero: no
// join waits.
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

// soon returns the time until a join may be admitted; 1 s if the rate is 0.
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
