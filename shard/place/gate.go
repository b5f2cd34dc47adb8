package place

import (
	"container/list"
	"time"
)

// gate is the queue of joins (new streams that wait for admission). It admits joins in the order of their arrival. Two
// token buckets limit the joins: one by their cost, one by their number. The gate reads no clock, and the mutex of
// Admission guards it. The buckets differ from golang.org/x/time/rate in three points. A join takes tokens from both
// buckets or from neither. An expensive join may take more tokens than there are, and later joins wait for the missing
// tokens. The expected wait of a join is computed without taking a token.
type gate struct {
	rate    float64       // cost of the joins to admit per second; 0: no join is admitted now
	most    float64       // largest number of joins per second; 0: no limit
	longest time.Duration // longest wait of a join
	size    int           // largest number of waiting joins
	full    bool          // memory is full, so at most fewWait joins may wait

	tokens      float64   // bucket for the cost; may be below 0 after an expensive join
	numbers     float64   // bucket for the number of joins
	filled      time.Time // time of the last fill
	waiting     list.List // waiting joins; each element is a *ticket
	waitingCost float64   // total cost of the waiting joins
}

// ticket is one join in the gate.
type ticket struct {
	cost    float64
	came    time.Time     // time of arrival
	open    chan struct{} // closed when the join is admitted or refused
	refused bool
	element *list.Element // in gate.waiting; nil: the join does not wait
}

// burst is the longest idle time for which tokens accumulate. Joins that arrive together may use the accumulated
// tokens.
const burst = 200 * time.Millisecond

// fewWait bounds the number of waiting joins while memory is full, since each join holds its first request.
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

// take removes the tokens for one join. If the rate is 0 or a bucket is empty, it removes no tokens and returns false.
func (g *gate) take(cost float64) bool {
	if g.rate <= 0 || g.tokens <= 0 || g.most > 0 && g.numbers < 1 {
		return false
	}
	g.tokens -= cost
	g.numbers--
	return true
}

// expected returns the expected wait of a join that comes now. If the rate is 0, the result is gate.longest.
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
// or if the expected wait exceeds gate.longest.
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

// advance admits waiting joins while there are tokens, and refuses joins that have waited too long. The result is the
// time at which to call advance again. It is zero if no join waits.
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

// soon returns the time until the next join may be admitted. If the rate is 0, it returns 1 s.
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
