// Package turns bounds concurrent work for many client hosts. A turn is the right to work. Hosts alternate, so that one
// host with many requests does not delay the others. The requests of a host may belong to several parts, such as
// tenants behind one client. The parts alternate within their host's turns.
//
// Owns: the order of turns.
// Reads: nothing.
// Never: trusts a client's statement.
package turns

import (
	"container/list"
	"net/netip"
	"runtime"
	"sync"
)

// Line grants turns. Hosts alternate, and within a host its parts alternate. The requests of one part are served in the
// order of their arrival, except those with Turn.First. A Line is safe for concurrent use.
type Line struct {
	perHost, perPart int

	mu      sync.Mutex // guards the fields below; no other lock is taken under it
	free    int
	waiting int
	running map[netip.Prefix]int // turns in use by each host
	parts   map[part]int         // turns in use by each part of a host
	hosts   map[netip.Prefix]*list.Element
	order   list.List // of *queue, the next host first; no queue is empty
}

// Turn identifies the owner (Host and Part) and the priority (First and Ahead) of a turn.
type Turn struct {
	Host  netip.Prefix // the client's network, as remote.Host of store/remote returns it
	Part  string       // name of a part of the host; empty for hosts without parts
	First bool         // the request precedes all waiting requests of the same part
	Ahead bool         // while this request waits, its host precedes hosts without such a request
}

type part struct {
	host netip.Prefix
	name string
}

func (t Turn) part() part { return part{t.Host, t.Part} }

// queue contains the waiting requests of one host.
type queue struct {
	host  netip.Prefix
	ahead int // number of waiting requests with Turn.Ahead
	parts map[string]*list.Element
	order list.List // of *row, the next part first; no row is empty
}

// row contains the waiting requests of one part.
type row struct {
	name string
	wait list.List // of *request
}

// request is a waiting request.
type request struct {
	granted chan struct{} // closed when the turn is granted
	ahead   bool          // Turn.Ahead
}

// New returns a Line that grants at most atOnce concurrent turns, and at most perHost of them to one host. If atOnce is
// 0, GOMAXPROCS applies. If perHost is 0, atOnce applies. The arguments must not be negative.
func New(atOnce, perHost int) *Line { return NewOfParts(atOnce, perHost, 0) }

// NewOfParts is like New. In addition, one part of a host has at most perPart concurrent turns. If perPart is 0,
// perHost applies. The arguments must not be negative.
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

// Enter waits for a turn of a host without parts. If it returns true, the caller has a turn, and must call Leave once
// with the same host. If the channel is closed first, it returns false, and the caller has no turn. A free turn is
// granted at once, even if the channel is closed. A nil channel is never closed. If the argument first is true, the
// request precedes all waiting requests of the same host.
func (l *Line) Enter(host netip.Prefix, first bool, gone <-chan struct{}) bool {
	return l.EnterAs(Turn{Host: host, First: first}, gone)
}

// Leave ends a turn of a host without parts, for which Enter has returned true.
func (l *Line) Leave(host netip.Prefix) { l.LeaveAs(Turn{Host: host}) }

// EnterAs waits for a turn. If it returns true, the caller has a turn, and must call LeaveAs once with the same Host
// and Part. If the channel is closed first, it returns false, and the caller has no turn. A free turn is granted at
// once, even if the channel is closed. A nil channel is never closed.
func (l *Line) EnterAs(t Turn, gone <-chan struct{}) bool {
	l.mu.Lock()
	if l.free > 0 && l.room(t.part()) {
		l.begin(t.part())
		l.mu.Unlock()
		return true
	}
	turn := &request{granted: make(chan struct{}), ahead: t.Ahead}
	own, place := l.wait(t, turn)
	l.mu.Unlock()
	select {
	case <-turn.granted:
		return true
	case <-gone:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn.granted: // the turn was granted while the channel was closed
		l.end(t.part())
	default:
		l.remove(t.part(), own, place)
	}
	return false
}

// LeaveAs ends a turn for which EnterAs has returned true. Only Host and Part of t are used.
func (l *Line) LeaveAs(t Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(t.part())
}

// Waiting returns the number of requests of all hosts that wait for a turn.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// wait adds a request to the row of its part. The caller has the lock.
func (l *Line) wait(t Turn, turn *request) (*row, *list.Element) {
	at := l.hosts[t.Host]
	if at == nil {
		at = l.order.PushBack(&queue{host: t.Host, parts: map[string]*list.Element{}})
		l.hosts[t.Host] = at
	}
	q := at.Value.(*queue)
	if t.Ahead {
		q.ahead++
	}
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

// room reports whether a part may have one more turn. The caller has the lock.
func (l *Line) room(p part) bool { return l.running[p.host] < l.perHost && l.parts[p] < l.perPart }

// begin occupies a free turn. The caller has the lock.
func (l *Line) begin(p part) {
	l.free--
	l.running[p.host]++
	l.parts[p]++
}

// end frees a turn and grants it to the next request. The caller has the lock.
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

// next grants the free turn to the next host and part whose bounds permit a turn. If the argument ahead is true, next
// considers only hosts with a request that has Turn.Ahead. The result reports whether a host got the turn. The caller
// has the lock.
func (l *Line) next(ahead bool) bool {
	for at := l.order.Front(); at != nil; at = at.Next() {
		q := at.Value.(*queue)
		if ahead && q.ahead == 0 || l.running[q.host] >= l.perHost {
			continue
		}
		for in := q.order.Front(); in != nil; in = in.Next() {
			own := in.Value.(*row)
			p := part{q.host, own.name}
			if !l.room(p) {
				continue
			}
			l.begin(p)
			l.order.MoveToBack(at)
			q.order.MoveToBack(in)
			close(l.remove(p, own, own.wait.Front()).granted)
			return true
		}
	}
	return false
}

// remove removes a waiting request of a part. It also removes the part if it has no other request, and the host if it
// has no other part. The caller has the lock.
func (l *Line) remove(p part, own *row, place *list.Element) *request {
	at := l.hosts[p.host]
	q, turn := at.Value.(*queue), own.wait.Remove(place).(*request)
	l.waiting--
	if turn.ahead {
		q.ahead--
	}
	if own.wait.Len() > 0 {
		return turn
	}
	q.order.Remove(q.parts[p.name])
	delete(q.parts, p.name)
	if q.order.Len() == 0 {
		l.order.Remove(at)
		delete(l.hosts, p.host)
	}
	return turn
}
