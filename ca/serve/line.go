package serve

import (
	"container/heap"
	"container/list"
	"time"
)

// line is the tickets of one class: identities in turn, each in the order of arrival.
type line struct {
	n       int
	bytes   int        // of the tickets' requests
	turns   *list.List // of *class, the next first
	classes map[string]*class
}

type class struct {
	identity string
	turn     *list.Element
	tickets  *list.List
	bytes    int
}

func newLine() line { return line{turns: list.New(), classes: map[string]*class{}} }

func (l *line) push(t *ticket) {
	in := l.classes[t.identity]
	if in == nil {
		in = &class{identity: t.identity, tickets: list.New()}
		in.turn = l.turns.PushBack(in)
		l.classes[t.identity] = in
	}
	t.element, t.state = in.tickets.PushBack(t), waiting
	l.n++
	l.bytes += t.bytes
	in.bytes += t.bytes
}

func (l *line) pop() *ticket {
	turn := l.turns.Front()
	if turn == nil {
		return nil
	}
	in := turn.Value.(*class)
	t := in.tickets.Front().Value.(*ticket)
	l.turns.MoveToBack(turn)
	l.remove(t)
	return t
}

func (l *line) remove(t *ticket) {
	in := l.classes[t.identity]
	in.tickets.Remove(t.element)
	t.element, t.state = nil, outside
	l.n--
	l.bytes -= t.bytes
	in.bytes -= t.bytes
	if in.tickets.Len() == 0 {
		l.turns.Remove(in.turn)
		delete(l.classes, in.identity)
	}
}

// last is the newest ticket of the identity whose turn is furthest away; nil: none waits.
func (l *line) last() *ticket {
	turn := l.turns.Back()
	if turn == nil {
		return nil
	}
	return turn.Value.(*class).tickets.Back().Value.(*ticket)
}

// ahead is how many tickets would start before one that identity pushed now.
func (l *line) ahead(identity string) int {
	own := 0
	if in := l.classes[identity]; in != nil {
		own = in.tickets.Len()
	}
	return min(l.n, (own+1)*len(l.classes))
}

// delays is a heap of tickets by the time they become ready.
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

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d delays) Len() int           { return len(d) }
func (d delays) Less(i, j int) bool { return d[i].ready.Before(d[j].ready) }
func (d delays) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *delays) Push(x any) {
	t := x.(*ticket)
	t.index = len(*d)
	*d = append(*d, t)
}

func (d *delays) Pop() any {
	last := len(*d) - 1
	t := (*d)[last]
	(*d)[last], *d = nil, (*d)[:last]
	return t
}

// rates are token buckets by identity, each kept as the one time at which it will be full again. They are not limiters of
// golang.org/x/time/rate, because the queue asks when an identity may have its next token long before it takes it (a Reservation takes it at
// once), and because there is one for each identity that asked of late: 24 bytes, where a Limiter has 80 and a mutex.
type rates struct {
	each  time.Duration // between two tokens
	burst time.Duration // worth of tokens
	full  map[string]time.Time
	sweep int // when so many are kept, those that are full go
}

func newRates(perSecond float64, burst int) rates {
	each := time.Duration(float64(time.Second) / perSecond)
	return rates{each: each, burst: time.Duration(burst) * each, full: map[string]time.Time{}, sweep: 1024}
}

// earliest is when identity may have its next token: now, or later.
func (r *rates) earliest(identity string, now time.Time) time.Time {
	if at := r.full[identity].Add(r.each - r.burst); at.After(now) {
		return at
	}
	return now
}

func (r *rates) take(identity string, now time.Time) {
	full := r.full[identity]
	if full.Before(now) {
		full = now
	}
	r.full[identity] = full.Add(r.each)
	if len(r.full) < r.sweep {
		return
	}
	for id, at := range r.full {
		if !at.After(now) {
			delete(r.full, id)
		}
	}
	r.sweep = max(1024, 2*len(r.full))
}
