package fanout

import (
	"container/list"
	"time"
)

// Budget bounds what is in flight. Zero fields mean the defaults.
type Budget struct {
	Streams int           // sent to at once; 100
	Bytes   int           // sent and not acknowledged by streams that are not slow; 256 MiB
	Slow    time.Duration // a stream that has owed an ACK for longer no longer counts against Bytes; 1 s
	Trial   int           // streams that configuration goes to first, see trial; 8
}

// patience is how many grants others may have while a lane waits.
const patience = 4

// Op is what an Event says.
type Op uint8

const (
	Join   Op = iota // a stream is there, in a namespace
	Leave            // it is gone
	Mark             // it has something to send, in a lane
	Done             // what it was granted is sent: so many bytes
	Ack              // so many of its bytes are acknowledged
	Refuse           // it refused what it was sent
	Tick             // time has passed
	Press            // goroutines waited so long for a processor
)

// Event is an input of Queue.Step. S identifies a stream.
type Event[S comparable] struct {
	Op        Op
	Stream    S
	Namespace string        // of Join
	First     bool          // of Join: a gateway, which is served before others
	Lane      Lane          // of Mark
	Bytes     int           // of Done and Ack
	Wait      time.Duration // of Press
}

// Grant is an output of Queue.Step: send to this stream, then say Done. Urgent: configuration that it waits for has its turn
// later, and only what is urgent is to be sent now.
type Grant[S comparable] struct {
	Stream S
	Urgent bool
}

// Queue decides who is sent to. A stream is in it at most once however often it is marked: what it is sent is computed
// when its turn comes. Not safe for concurrent use.
type Queue[S comparable] struct {
	budget  Budget
	streams map[S]*entry[S]
	lanes   [NumLanes]lane[S]
	granted int
	bytes   int // charged against the budget
	charged *list.List
	passed  [NumLanes]int // grants to others since one to this lane, while that waits
	trial   trial
	beside  beside[S]
}

// lane is a ring of namespaces that have streams waiting; one ring for gateways, which come first, one for the others.
type lane[S comparable] struct {
	rings [2]list.List // of *group[S]
	named [2]map[string]*group[S]
}

func (l *lane[S]) empty() bool { return l.rings[0].Len()+l.rings[1].Len() == 0 }

// front is the group whose turn it is.
func (l *lane[S]) front() (*list.List, *group[S]) {
	ring := &l.rings[0]
	if ring.Len() == 0 {
		ring = &l.rings[1]
	}
	return ring, ring.Front().Value.(*group[S])
}

// group is the streams of one namespace that wait in a lane, first in first out.
type group[S comparable] struct {
	name    string
	waiting list.List // of *entry[S]
	in      *list.Element
}

type entry[S comparable] struct {
	stream    S
	namespace string
	class     uint8                   // 0: a gateway, 1: another
	at        [NumLanes]*list.Element // in its group; nil: not queued in that lane
	trying    bool                    // it counts in the trial
	slot      *list.Element           // in beside; nil: none
	sentAt    time.Time               // when its turn there was over; zero: it is not
	granted   bool
	again     [NumLanes]bool // marked while granted
	first     bool           // it was the first in the config lane when it was busy with what is urgent
	owing     int            // bytes charged
	forgiven  int            // written off as slow, and not yet acknowledged
	early     int            // acknowledged before Done told of them
	since     time.Time
	charge    *list.Element
}

// NewQueue makes an empty queue.
func NewQueue[S comparable](b Budget) *Queue[S] {
	if b.Streams <= 0 {
		b.Streams = 100
	}
	if b.Bytes <= 0 {
		b.Bytes = 256 << 20
	}
	if b.Slow <= 0 {
		b.Slow = time.Second
	}
	if b.Trial <= 0 {
		b.Trial = 8
	}
	q := &Queue[S]{budget: b, beside: beside[S]{window: firstWindow}, streams: map[S]*entry[S]{}, charged: list.New(), trial: trial{least: b.Trial, window: b.Trial}}
	for i := range q.lanes {
		for class := range q.lanes[i].named {
			q.lanes[i].named[class] = map[string]*group[S]{}
		}
	}
	return q
}

// Step takes one event in and says who is to be sent to now.
func (q *Queue[S]) Step(now time.Time, e Event[S]) []Grant[S] {
	q.expire(now)
	q.beside.expire(now)
	s := q.streams[e.Stream]
	switch {
	case e.Op == Join && s == nil:
		s = &entry[S]{stream: e.Stream, namespace: e.Namespace, class: 1}
		if e.First {
			s.class = 0
		}
		q.streams[e.Stream] = s
	case e.Op == Press:
		q.beside.press(e.Wait)
	case s == nil:
	case e.Op == Leave:
		q.leave(s)
	case e.Op == Mark:
		q.mark(s, e.Lane, now)
	case e.Op == Done && s.granted:
		q.done(s, e.Bytes, now)
	case e.Op == Ack:
		q.ack(s, e.Bytes)
		q.settle(s, now)
	case e.Op == Refuse:
		q.trial.refused()
	}
	return q.grants(now)
}

// Next is when time alone will change something: the next charge that becomes slow, or a way that becomes long.
func (q *Queue[S]) Next() (at time.Time, ok bool) {
	if front := q.charged.Front(); front != nil {
		at, ok = front.Value.(*entry[S]).since.Add(q.budget.Slow), true
	}
	if long, is := q.beside.next(); is && !q.lanes[Config].empty() && (!ok || long.Before(at)) {
		at, ok = long, true
	}
	return at, ok
}

// Pressing says whether Press matters: configuration is sent beside endpoints.
func (q *Queue[S]) Pressing(now time.Time) bool {
	return q.beside.on(now) && (q.beside.slots.Len() > 0 || !q.lanes[Config].empty())
}

// Waiting is the number of streams in a lane.
func (q *Queue[S]) Waiting(l Lane) int {
	n := 0
	for _, named := range q.lanes[l].named {
		for _, g := range named {
			n += g.waiting.Len()
		}
	}
	return n
}

func (q *Queue[S]) mark(s *entry[S], l Lane, now time.Time) {
	if l == Endpoints {
		q.beside.last = now
	}
	switch {
	case s.at[l] != nil:
	case s.granted:
		s.again[l] = true
	default:
		q.push(s, l, false)
	}
}

// done ends a turn: what was marked meanwhile waits for the next.
func (q *Queue[S]) done(s *entry[S], bytes int, now time.Time) {
	s.granted = false
	q.granted--
	q.beside.sent(s, now)
	q.owe(s, bytes, now)
	q.settle(s, now)
	for l, again := range s.again {
		if again && s.at[l] == nil {
			q.push(s, Lane(l), Lane(l) == Config && s.first)
		}
	}
	s.again, s.first = [NumLanes]bool{}, false
}

// push puts a stream into a lane, behind those of its namespace that wait there, or before them.
func (q *Queue[S]) push(s *entry[S], to Lane, first bool) {
	l := &q.lanes[to]
	g := l.named[s.class][s.namespace]
	if g == nil {
		g = &group[S]{name: s.namespace}
		l.named[s.class][s.namespace] = g
		g.in = l.rings[s.class].PushBack(g)
	}
	if first {
		s.at[to] = g.waiting.PushFront(s)
	} else {
		s.at[to] = g.waiting.PushBack(s)
	}
}

func (q *Queue[S]) remove(s *entry[S], from Lane) {
	if s.at[from] == nil {
		return
	}
	l := &q.lanes[from]
	g := l.named[s.class][s.namespace]
	g.waiting.Remove(s.at[from])
	s.at[from] = nil
	if g.waiting.Len() == 0 {
		l.rings[s.class].Remove(g.in)
		delete(l.named[s.class], g.name)
	}
}

func (q *Queue[S]) leave(s *entry[S]) {
	for l := range NumLanes {
		q.remove(s, l)
	}
	if s.granted {
		q.granted--
	}
	q.release(s, s.owing)
	q.untry(s)
	delete(q.streams, s.stream)
}

// grants hands out turns while the budget lasts.
func (q *Queue[S]) grants(now time.Time) (out []Grant[S]) {
	for q.granted < q.budget.Streams && q.bytes < q.budget.Bytes {
		l, any := q.pick(now)
		if !any {
			break
		}
		ring, g := q.lanes[l].front()
		s := g.waiting.Front().Value.(*entry[S])
		if s.granted { // for what is urgent: it has its turn here when that is done
			q.remove(s, l)
			s.again[l], s.first = true, true
			continue
		}
		ring.MoveToBack(g.in)
		urgent := l != Config && s.at[Config] != nil
		for l := range NumLanes {
			if l != Config || !urgent {
				q.remove(s, l)
			}
		}
		if l == Config {
			q.try(s, now)
			q.beside.enter(s)
		}
		s.granted = true
		q.granted++
		out = append(out, Grant[S]{Stream: s.stream, Urgent: urgent})
	}
	return out
}

// pick is the lane whose turn it is: the most urgent one, unless another has been passed over too often; false when nobody
// waits.
func (q *Queue[S]) pick(now time.Time) (Lane, bool) {
	turn, waits := NumLanes, [NumLanes]bool{}
	for l := range NumLanes {
		waits[l] = !q.lanes[l].empty() && (l != Config || q.trial.open(now) && q.beside.open(now))
		if waits[l] && (turn == NumLanes || q.passed[l] >= patience) {
			turn = l
		}
	}
	for l := range NumLanes {
		if q.passed[l]++; !waits[l] || l == turn {
			q.passed[l] = 0
		}
	}
	return turn, turn != NumLanes
}

func (q *Queue[S]) owe(s *entry[S], bytes int, now time.Time) {
	early := min(bytes, s.early)
	s.early -= early
	if bytes -= early; bytes <= 0 {
		return
	}
	if s.charge == nil {
		s.since = now
		s.charge = q.charged.PushBack(s)
	}
	s.owing += bytes
	q.bytes += bytes
}

// ack settles the oldest first.
func (q *Queue[S]) ack(s *entry[S], bytes int) {
	forgiven := min(bytes, s.forgiven)
	s.forgiven -= forgiven
	owed := min(bytes-forgiven, s.owing)
	q.release(s, owed)
	s.early += bytes - forgiven - owed
}

func (q *Queue[S]) release(s *entry[S], bytes int) {
	bytes = min(bytes, s.owing)
	s.owing -= bytes
	q.bytes -= bytes
	if s.owing == 0 && s.charge != nil {
		q.charged.Remove(s.charge)
		s.charge = nil
	}
}

// expire writes off what slow streams owe: they hold one message each, by reference, and are closed by their own
// deadline; they must not hold up the others.
func (q *Queue[S]) expire(now time.Time) {
	for front := q.charged.Front(); front != nil; front = q.charged.Front() {
		s := front.Value.(*entry[S])
		if now.Sub(s.since) < q.budget.Slow {
			return
		}
		s.forgiven += s.owing
		q.release(s, s.owing)
		q.untry(s) // a slow one says nothing about what it was sent
	}
}
