package serve

import (
	"container/heap"
	"container/list"
	"time"
)

// line is the tickets of one class: identities in turn, of each its credentials in turn, and of each of these in the order of arrival.
type line struct {
	n, bytes   int // tickets, and bytes of their requests
	identities rotation[*party]
}

// party is the tickets of one identity.
type party struct {
	n, bytes    int
	credentials rotation[*own]
}

// own is the tickets of one credential.
type own struct {
	bytes   int
	tickets *list.List
}

func newLine() line { return line{identities: newRotation[*party]()} }

// find gives what there is of a ticket's identity and credential; nil: nothing.
func (l *line) find(h holder) (p *party, o *own) {
	if p = l.identities.find(h.identity); p != nil {
		o = p.credentials.find(h.credential)
	}
	return p, o
}

func (l *line) push(t *ticket) {
	p, o := l.find(t.holder)
	if p == nil {
		p = &party{credentials: newRotation[*own]()}
		l.identities.join(t.identity, p)
	}
	if o == nil {
		o = &own{tickets: list.New()}
		p.credentials.join(t.credential, o)
	}
	t.element, t.state = o.tickets.PushBack(t), waiting
	l.n, p.n = l.n+1, p.n+1
	l.bytes, p.bytes, o.bytes = l.bytes+t.bytes, p.bytes+t.bytes, o.bytes+t.bytes
}

func (l *line) pop() *ticket {
	if l.n == 0 {
		return nil
	}
	t := l.identities.next().credentials.next().tickets.Front().Value.(*ticket)
	l.remove(t)
	return t
}

func (l *line) remove(t *ticket) {
	p, o := l.find(t.holder)
	o.tickets.Remove(t.element)
	t.element, t.state = nil, outside
	l.n, p.n = l.n-1, p.n-1
	l.bytes, p.bytes, o.bytes = l.bytes-t.bytes, p.bytes-t.bytes, o.bytes-t.bytes
	if o.tickets.Len() == 0 {
		p.credentials.leave(t.credential)
	}
	if p.n == 0 {
		l.identities.leave(t.identity)
	}
}

// last is the newest ticket of the identity, and the credential of it, whose turns are furthest away; nil: none waits.
func (l *line) last() *ticket {
	if l.n == 0 {
		return nil
	}
	return l.identities.last().credentials.last().tickets.Back().Value.(*ticket)
}

// ahead is how many tickets would start before one that a holder pushed now.
func (l *line) ahead(h holder) int {
	p, o := l.find(h)
	own := 0 // of its identity
	if p != nil {
		own = p.n
	}
	if p != nil && o == nil {
		own = min(own, p.credentials.len())
	} else if o != nil {
		own = min(own, (o.tickets.Len()+1)*p.credentials.len())
	}
	return min(l.n, (own+1)*l.identities.len())
}

// rotation gives its members turns.
type rotation[T any] struct {
	turns *list.List // of seat[T], the next first
	seats map[string]*list.Element
}

type seat[T any] struct {
	name string
	of   T
}

func newRotation[T any]() rotation[T] {
	return rotation[T]{turns: list.New(), seats: map[string]*list.Element{}}
}

func (r rotation[T]) len() int { return len(r.seats) }

// find gives a member; the zero T: it is none.
func (r rotation[T]) find(name string) (of T) {
	if turn := r.seats[name]; turn != nil {
		of = turn.Value.(seat[T]).of
	}
	return of
}

// join adds a member, whose turn is the last.
func (r rotation[T]) join(name string, of T) { r.seats[name] = r.turns.PushBack(seat[T]{name, of}) }

func (r rotation[T]) leave(name string) {
	r.turns.Remove(r.seats[name])
	delete(r.seats, name)
}

// next is whose turn it is, of at least one; its next turn is the last.
func (r rotation[T]) next() T {
	turn := r.turns.Front()
	r.turns.MoveToBack(turn)
	return turn.Value.(seat[T]).of
}

// last is whose turn is the last, of at least one.
func (r rotation[T]) last() T { return r.turns.Back().Value.(seat[T]).of }

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

// rates are token buckets by identity, or by credential of one, each kept as the one time at which it will be full again. They are not limiters of
// golang.org/x/time/rate, because the queue asks when an identity may have its next token long before it takes it (a Reservation takes it at
// once), and because there is one for each identity that asked of late: 24 bytes, where a Limiter has 80 and a mutex.
type rates struct {
	each  time.Duration // between two tokens
	burst time.Duration // worth of tokens
	full  map[holder]time.Time
	sweep int // when so many are kept, those that are full go
}

func newRates(perSecond float64, burst int) rates {
	each := time.Duration(float64(time.Second) / perSecond)
	return rates{each: each, burst: time.Duration(burst) * each, full: map[holder]time.Time{}, sweep: 1024}
}

// earliest is when a holder may have its next token: now, or later.
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
