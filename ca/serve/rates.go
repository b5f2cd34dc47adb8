package serve

import (
	"container/heap"
	"time"
)

// delays is a heap of tickets (delayed requests), ordered by the time when they become ready.
type delays []*ticket

func (d *delays) add(t *ticket) {
	t.state = delayed
	heap.Push(d, t)
}

func (d *delays) pop() *ticket {
	t := heap.Pop(d).(*ticket)
	t.state = outside
	return t
}

func (d *delays) remove(t *ticket) {
	heap.Remove(d, t.index)
	t.state = outside
}

func (d delays) next() time.Time { return d[0].ready }

// Len implements heap.Interface.
func (d delays) Len() int { return len(d) }

// Less implements heap.Interface.
func (d delays) Less(i, j int) bool { return d[i].ready.Before(d[j].ready) }

// Swap implements heap.Interface.
func (d delays) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *delays) Push(x any) {
	t := x.(*ticket)
	t.index = len(*d)
	*d = append(*d, t)
}

// Pop implements heap.Interface.
func (d *delays) Pop() any {
	last := len(*d) - 1
	t := (*d)[last]
	(*d)[last], *d = nil, (*d)[:last]
	return t
}

// rates contains a token bucket for each holder (identity, or credential of an identity) with recent requests. A bucket
// is stored as the time at which it is full again. golang.org/x/time/rate does not suit, for two reasons. The queue
// needs the time of the next token before it decides to take the token, but a Reservation takes the token at once. A
// bucket needs 24 bytes here, but a rate.Limiter needs 80 bytes and has a mutex.
type rates struct {
	each  time.Duration // time between two tokens
	burst time.Duration // time in which an empty bucket is filled
	full  map[holder]time.Time
	sweep int // number of buckets at which the method take removes the full buckets
}

func newRates(perSecond float64, burst int) rates {
	each := time.Duration(float64(time.Second) / perSecond)
	return rates{each: each, burst: time.Duration(burst) * each, full: map[holder]time.Time{}, sweep: 1024}
}

// earliest returns the time at which a holder can take its next token. The time is not before now. The method takes no
// token.
func (r *rates) earliest(h holder, now time.Time) time.Time {
	if at := r.full[h].Add(r.each - r.burst); at.After(now) {
		return at
	}
	return now
}

func (r *rates) take(h holder, now time.Time) {
	full := r.full[h]
	if full.Before(now) {
		full = now
	}
	r.full[h] = full.Add(r.each)
	if len(r.full) < r.sweep {
		return
	}
	for h, at := range r.full {
		if !at.After(now) {
			delete(r.full, h)
		}
	}
	r.sweep = max(1024, 2*len(r.full))
}
