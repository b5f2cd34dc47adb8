// Package turns does work for many hosts, a bounded amount at a time and the hosts in turn, so that a host which asks for much does not keep
// others waiting. What a host asks for may be of several parts, such as tenants behind one client, which have that host's turns in turn (leaf).
//
// Owns: whose turn is next.  Reads: nothing.  Never: believes what a client says.
package turns

import (
	"container/list"
	"net/netip"
	"runtime"
	"sync"
)

// Line gives turns: hosts have theirs one after the other, in each host its parts, and what is of one part in the order in which it came.
// Safe for concurrent use.
type Line struct {
	perHost, perPart int

	mu      sync.Mutex // a leaf
	free    int
	waiting int
	running map[netip.Prefix]int // turns that each host has
	parts   map[part]int         // turns that each part of a host has
	hosts   map[netip.Prefix]*list.Element
	order   list.List // of *queue, that whose turn is next first; none is empty
}

// Turn says whose a turn is.
type Turn struct {
	Host  netip.Prefix // remote.Host
	Part  string       // of the host; empty: it has no parts
	First bool         // before what waits of the same part
	Ahead bool         // before other hosts that are not
}

type part struct {
	host netip.Prefix
	name string
}

func (t Turn) part() part { return part{t.Host, t.Part} }

// queue is what waits of one host.
type queue struct {
	host  netip.Prefix
	ahead bool
	parts map[string]*list.Element
	order list.List // of *row, that whose turn is next first; none is empty
}

// row has the waiting turns of one part.
type row struct {
	name string
	wait list.List // of chan struct{}, closed when its turn has come
}

// New lets atOnce have a turn at once, of these perHost of one host; 0: one for each processor, and as many as there are.
func New(atOnce, perHost int) *Line { return NewOfParts(atOnce, perHost, 0) }

// NewOfParts is New with a bound for what one part of a host has at once; 0: as many as the host.
func NewOfParts(atOnce, perHost, perPart int) *Line {
	if atOnce == 0 {
		atOnce = runtime.GOMAXPROCS(0)
	}
	if perHost == 0 {
		perHost = atOnce
	}
	if perPart == 0 {
		perPart = perHost
	}
	return &Line{perHost: perHost, perPart: perPart, free: atOnce, running: map[netip.Prefix]int{}, parts: map[part]int{},
		hosts: map[netip.Prefix]*list.Element{}}
}

// Enter waits for a turn of a host, which Leave ends, until gone is closed: false. first: it goes before what waits of the same host.
func (l *Line) Enter(host netip.Prefix, first bool, gone <-chan struct{}) bool {
	return l.EnterAs(Turn{Host: host, First: first}, gone)
}

// Leave ends a turn of a host.
func (l *Line) Leave(host netip.Prefix) { l.LeaveAs(Turn{Host: host}) }

// EnterAs waits for a turn, which LeaveAs ends, until gone is closed: false.
func (l *Line) EnterAs(t Turn, gone <-chan struct{}) bool {
	l.mu.Lock()
	if l.free > 0 && l.room(t.part()) {
		l.begin(t.part())
		l.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	own, place := l.wait(t, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-gone:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came first
		l.end(t.part())
	default:
		own.wait.Remove(place)
		l.waiting--
		l.tidy(t.part(), own)
	}
	return false
}

// LeaveAs ends a turn.
func (l *Line) LeaveAs(t Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(t.part())
}

// Waiting is how many wait for a turn.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// wait puts a turn into the row of its part. Called with the lock held.
func (l *Line) wait(t Turn, turn chan struct{}) (*row, *list.Element) {
	at := l.hosts[t.Host]
	if at == nil {
		at = l.order.PushBack(&queue{host: t.Host, parts: map[string]*list.Element{}})
		l.hosts[t.Host] = at
	}
	q := at.Value.(*queue)
	q.ahead = t.Ahead
	in := q.parts[t.Part]
	if in == nil {
		in = q.order.PushBack(&row{name: t.Part})
		q.parts[t.Part] = in
	}
	l.waiting++
	own := in.Value.(*row)
	if t.First {
		return own, own.wait.PushFront(turn)
	}
	return own, own.wait.PushBack(turn)
}

// room says whether a part may have one more turn. Called with the lock held.
func (l *Line) room(p part) bool { return l.running[p.host] < l.perHost && l.parts[p] < l.perPart }

// begin takes a turn that is free. Called with the lock held.
func (l *Line) begin(p part) {
	l.free--
	l.running[p.host]++
	l.parts[p]++
}

// end gives a turn back, and to whoever is next. Called with the lock held.
func (l *Line) end(p part) {
	l.free++
	if l.running[p.host]--; l.running[p.host] == 0 {
		delete(l.running, p.host)
	}
	if l.parts[p]--; l.parts[p] == 0 {
		delete(l.parts, p)
	}
	if !l.next(true) {
		l.next(false)
	}
}

// next gives the turn that is free to the next of the hosts that are ahead, or of all. Called with the lock held.
func (l *Line) next(ahead bool) bool {
	for at := l.order.Front(); at != nil; at = at.Next() {
		q := at.Value.(*queue)
		if ahead && !q.ahead || l.running[q.host] >= l.perHost {
			continue
		}
		for in := q.order.Front(); in != nil; in = in.Next() {
			own := in.Value.(*row)
			p := part{q.host, own.name}
			if !l.room(p) {
				continue
			}
			l.begin(p)
			l.waiting--
			close(own.wait.Remove(own.wait.Front()).(chan struct{}))
			l.order.MoveToBack(at)
			q.order.MoveToBack(in)
			l.tidy(p, own)
			return true
		}
	}
	return false
}

// tidy forgets a part of which nobody waits, and its host with the last one. Called with the lock held.
func (l *Line) tidy(p part, own *row) {
	if own.wait.Len() > 0 {
		return
	}
	at := l.hosts[p.host]
	q := at.Value.(*queue)
	q.order.Remove(q.parts[p.name])
	delete(q.parts, p.name)
	if q.order.Len() == 0 {
		l.order.Remove(at)
		delete(l.hosts, p.host)
	}
}
