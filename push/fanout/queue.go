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

// patience is how many grants in a row the endpoint lane may have while the config lane waits.
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
)

// Event is an input of Queue.Step. S identifies a stream.
type Event[S comparable] struct {
	Op        Op
	Stream    S
	Namespace string // of Join
	First     bool   // of Join: a gateway, which is served before others
	Lane      Lane   // of Mark
	Bytes     int    // of Done and Ack
}

// Grant is an output of Queue.Step: send to this stream, then say Done.
type Grant[S comparable] struct{ Stream S }

// Queue decides who is sent to. A stream is in it at most once however often it is marked: what it is sent is computed
// when its turn comes. Not safe for concurrent use.
type Queue[S comparable] struct {
	budget  Budget
	streams map[S]*entry[S]
	lanes   [NumLanes]lane[S]
	granted int
	bytes   int // charged against the budget
	charged *list.List
	streak  int // grants to the endpoint lane since one to the config lane, while that waits
	trial   trial
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
	class     uint8 // 0: a gateway, 1: another
	lane      Lane
	at        *list.Element // in its group; nil: not queued
	trying    bool          // it counts in the trial
	granted   bool
	again     bool // marked while granted, in lane
	owing     int  // bytes charged
	forgiven  int  // written off as slow, and not yet acknowledged
	early     int  // acknowledged before Done told of them
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
	q := &Queue[S]{budget: b, streams: map[S]*entry[S]{}, charged: list.New(), trial: trial{least: b.Trial, window: b.Trial}}
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
	s := q.streams[e.Stream]
	switch {
	case e.Op == Join && s == nil:
		s = &entry[S]{stream: e.Stream, namespace: e.Namespace, class: 1}
		if e.First {
			s.class = 0
		}
		q.streams[e.Stream] = s
	case s == nil:
	case e.Op == Leave:
		q.leave(s)
	case e.Op == Mark:
		q.mark(s, e.Lane)
	case e.Op == Done && s.granted:
		s.granted = false
		q.granted--
		q.owe(s, e.Bytes, now)
		q.settle(s, now)
		if s.again {
			s.again = false
			q.push(s)
		}
	case e.Op == Ack:
		q.ack(s, e.Bytes)
		q.settle(s, now)
	case e.Op == Refuse:
		q.trial.refused()
	}
	return q.grants(now)
}

// Next is when time alone will change something: the next charge that becomes slow.
func (q *Queue[S]) Next() (time.Time, bool) {
	if front := q.charged.Front(); front != nil {
		return front.Value.(*entry[S]).since.Add(q.budget.Slow), true
	}
	return time.Time{}, false
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

func (q *Queue[S]) mark(s *entry[S], l Lane) {
	switch {
	case s.granted:
		if !s.again || l < s.lane {
			s.lane = l
		}
		s.again = true
	case s.at == nil:
		s.lane = l
		q.push(s)
	case l < s.lane: // what waits becomes more urgent: endpoints never wait behind configuration
		q.remove(s)
		s.lane = l
		q.push(s)
	}
}

func (q *Queue[S]) push(s *entry[S]) {
	l := &q.lanes[s.lane]
	g := l.named[s.class][s.namespace]
	if g == nil {
		g = &group[S]{name: s.namespace}
		l.named[s.class][s.namespace] = g
		g.in = l.rings[s.class].PushBack(g)
	}
	s.at = g.waiting.PushBack(s)
}

func (q *Queue[S]) remove(s *entry[S]) {
	l := &q.lanes[s.lane]
	g := l.named[s.class][s.namespace]
	g.waiting.Remove(s.at)
	s.at = nil
	if g.waiting.Len() == 0 {
		l.rings[s.class].Remove(g.in)
		delete(l.named[s.class], g.name)
	}
}

func (q *Queue[S]) leave(s *entry[S]) {
	if s.at != nil {
		q.remove(s)
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
		l := q.pick(now)
		if l == nil {
			break
		}
		ring, g := l.front()
		s := g.waiting.Front().Value.(*entry[S])
		ring.MoveToBack(g.in)
		q.remove(s)
		if l == &q.lanes[Config] {
			q.try(s, now)
		}
		s.granted = true
		q.granted++
		out = append(out, Grant[S]{s.stream})
	}
	return out
}

// pick is the lane whose turn it is; nil when nobody waits.
func (q *Queue[S]) pick(now time.Time) *lane[S] {
	fast, slow := &q.lanes[Endpoints], &q.lanes[Config]
	mayConfig := !slow.empty() && q.trial.open(now)
	switch {
	case !mayConfig && fast.empty():
		return nil
	case !mayConfig:
		q.streak = 0
		return fast
	case fast.empty() || q.streak >= patience:
		q.streak = 0
		return slow
	}
	q.streak++
	return fast
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
