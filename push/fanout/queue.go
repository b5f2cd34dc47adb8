package fanout

import (
	"container/list"
	"time"
)

// Budget bounds the sends in progress. Zero fields mean the defaults.
type Budget struct {
	Streams int           // streams that are sent to at a time; 0: 100
	Bytes   int           // bytes sent and not acknowledged by streams that are not slow; 0: 256 MiB
	Slow    time.Duration // age of an unacknowledged charge after which a stream no longer counts against Bytes; 0: 1 s
	Rollout int           // streams that get a plan of configuration first (rollout); 0: 8
	// WindowOff switches the concurrency window off, to measure its effect.
	WindowOff bool
}

// patience is the number of grants to others after which a waiting lane is next.
const patience = 4

// Op is the kind of an Event.
type Op uint8

const (
	Join   Op = iota // a stream is added, in a namespace
	Leave            // it has left
	Mark             // it has something to send, in a lane
	Done             // its turn is over, with this many bytes sent
	Ack              // this many bytes are acknowledged
	Accept           // it has acknowledged everything that was sent of a plan
	Skip             // there was nothing of a plan to send to it
	Refuse           // it refused a part of a plan
	Tick             // time has passed
	Press            // a measurement of how long goroutines waited for a processor
)

// Event is an input of Queue.Step. S identifies a stream.
type Event[S comparable] struct {
	Op        Op
	Stream    S
	Namespace string // of Join
	First     bool   // of Join: a gateway, which is served before others
	Lane      Lane   // of Mark
	// Plan is for Mark in the lane Config: the plan that is new to the stream; 0: not new. It is also for Accept, Skip and
	// Refuse.
	Plan  int64
	By    string        // of Refuse: the identity
	Bytes int           // of Done and Ack
	Wait  time.Duration // of Press
}

// Grant is an output of Queue.Step: send to this stream, then pass Done. Urgent means that only urgent changes are sent
// now, because configuration has its turn later. Plan is the newest plan that the stream may be sent from now on; 0:
// unchanged.
type Grant[S comparable] struct {
	Stream S
	Urgent bool
	Plan   int64
}

// tried is the lane of configuration that is new to a stream: the part of Config that is delivered progressively. A
// stream that waits here does not wait in Config.
const (
	tried    = NumLanes
	allLanes = NumLanes + 1
)

// Queue decides which streams are sent to. A stream is in it at most once, however often it is marked; its response is
// computed in its turn. It is not safe for concurrent use.
type Queue[S comparable] struct {
	budget  Budget
	streams map[S]*entry[S]
	lanes   [allLanes]rings[S]
	granted int
	bytes   int // charged against the budget
	charged *list.List
	passed  [allLanes]int // grants to others since the last one to this lane, while it waits
	rollout rollout[S]
	window  concurrencyWindow[S]
}

// rings are the namespaces with streams that wait in a lane: one ring for gateways, which come first, and one for all
// others.
type rings[S comparable] struct {
	of    [2]list.List // of *group[S]
	named [2]map[string]*group[S]
}

func (l *rings[S]) empty() bool { return l.of[0].Len()+l.of[1].Len() == 0 }

// front returns the ring and the group whose turn is next.
func (l *rings[S]) front() (*list.List, *group[S]) {
	ring := &l.of[0]
	if ring.Len() == 0 {
		ring = &l.of[1]
	}
	return ring, ring.Front().Value.(*group[S])
}

// group holds the streams of one namespace that wait in a lane, first in, first out.
type group[S comparable] struct {
	name    string
	waiting list.List // of *entry[S]
	in      *list.Element
}

type entry[S comparable] struct {
	stream    S
	namespace string
	class     uint8                   // 0: a gateway, 1: any other
	at        [allLanes]*list.Element // in its group; nil: not queued in that lane
	slots     [numSlots]*list.Element // nil: no slot
	sentAt    [numSlots]time.Time     // when its turn for the slot ended; zero: it has not
	granted   bool
	plan      int64          // the newest plan that it had a turn for; 0 after Skip or Refuse: it needs another turn
	again     [allLanes]bool // marked while granted
	first     bool           // it was first in its lane of configuration when its urgent turn began
	unacked   int            // bytes charged
	forgiven  int            // bytes written off as slow, and not acknowledged yet
	early     int            // bytes acknowledged before Done
	since     time.Time
	charge    *list.Element
}

// NewQueue returns an empty Queue.
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
	if b.Rollout <= 0 {
		b.Rollout = 8
	}
	q := &Queue[S]{budget: b, streams: map[S]*entry[S]{}, charged: list.New(),
		window:  concurrencyWindow[S]{off: b.WindowOff, size: firstWindow, slots: slots[S]{kind: windowSlot}},
		rollout: rollout[S]{most: b.Rollout, least: b.Rollout, window: b.Rollout, slots: slots[S]{kind: rolloutSlot}}}
	for i := range q.lanes {
		for class := range q.lanes[i].named {
			q.lanes[i].named[class] = map[string]*group[S]{}
		}
	}
	return q
}

// Step processes one event and returns the streams to send to now.
func (q *Queue[S]) Step(now time.Time, e Event[S]) []Grant[S] {
	q.expire(now)
	q.window.expire(now)
	q.rollout.expire(now, q.budget.Slow)
	s := q.streams[e.Stream]
	switch {
	case e.Op == Join && s == nil:
		s = &entry[S]{stream: e.Stream, namespace: e.Namespace, class: 1}
		if e.First {
			s.class = 0
		}
		q.streams[e.Stream] = s
	case e.Op == Press:
		q.window.press(e.Wait)
	case s == nil:
	case e.Op == Leave:
		q.leave(s)
	case e.Op == Mark:
		q.mark(s, e.Lane, e.Plan, now)
	case e.Op == Done && s.granted:
		q.done(s, e.Bytes, now)
	case e.Op == Ack:
		q.ack(s, e.Bytes)
		q.mayRest(s)
	case e.Op == Accept:
		q.rollout.accept(s, e.Plan)
	case e.Op == Skip:
		s.plan = 0
		q.rollout.skip(s, e.Plan)
	case e.Op == Refuse:
		s.plan = 0
		q.rollout.refuse(s, e.Plan, e.By, now)
	}
	return q.grants(now)
}

// Next returns when time alone will change something: the next charge becomes slow, a write becomes long, or a slot of
// the rollout becomes free.
func (q *Queue[S]) Next() (at time.Time, ok bool) {
	sooner := func(t time.Time, is bool) {
		if is && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if front := q.charged.Front(); front != nil {
		sooner(front.Value.(*entry[S]).since.Add(q.budget.Slow), true)
	}
	if q.configWaits() {
		sooner(q.window.next())
	}
	if !q.lanes[tried].empty() {
		sooner(q.rollout.next(q.budget.Slow))
	}
	return at, ok
}

func (q *Queue[S]) configWaits() bool { return !q.lanes[Config].empty() || !q.lanes[tried].empty() }

// Pressing reports whether Press matters: configuration is sent while endpoints change.
func (q *Queue[S]) Pressing(now time.Time) bool {
	return q.window.on(now) && (q.window.slots.count() > 0 || q.configWaits())
}

// Waiting returns the number of streams in a lane.
func (q *Queue[S]) Waiting(l Lane) int {
	n := 0
	for _, named := range q.lanes[l].named {
		for _, g := range named {
			n += g.waiting.Len()
		}
	}
	if l == Config {
		n += q.Waiting(tried)
	}
	return n
}

// mark adds a stream to a lane; with a plan that is new to the stream, to the lane of streams on which the plan is
// tried. A stream with a turn is added when the turn ends.
func (q *Queue[S]) mark(s *entry[S], l Lane, plan int64, now time.Time) {
	if l == Endpoints {
		q.window.last = now
	}
	if l == Config && plan > s.plan { // otherwise the stream had its turn for this plan, and the mark is late
		q.rollout.begin(plan, len(q.streams))
		q.remove(s, Config)
		l = tried
	}
	switch {
	case s.at[l] != nil || l == Config && s.at[tried] != nil:
	case s.granted:
		s.again[l] = true
	default:
		q.push(s, l, false)
	}
}

// done ends a turn. Marks during the turn wait for the next one.
func (q *Queue[S]) done(s *entry[S], bytes int, now time.Time) {
	s.granted = false
	q.granted--
	q.window.done(s, bytes, now)
	q.rollout.slots.done(s, now)
	q.charge(s, bytes, now)
	q.mayRest(s)
	s.again[Config] = s.again[Config] && !s.again[tried] && s.at[tried] == nil
	for l, again := range s.again {
		if again && s.at[l] == nil {
			q.push(s, Lane(l), Lane(l) >= Config && s.first)
		}
	}
	s.again, s.first = [allLanes]bool{}, false
}

// mayRest frees a stream's slot of the window if the stream has no turn and has acknowledged all bytes.
func (q *Queue[S]) mayRest(s *entry[S]) {
	if !s.granted && s.unacked == 0 {
		q.window.slots.leave(s)
	}
}

// push adds a stream to a lane, behind the waiting streams of its namespace, or with first before them.
func (q *Queue[S]) push(s *entry[S], to Lane, first bool) {
	l := &q.lanes[to]
	g := l.named[s.class][s.namespace]
	if g == nil {
		g = &group[S]{name: s.namespace}
		l.named[s.class][s.namespace] = g
		g.in = l.of[s.class].PushBack(g)
	}
	if first {
		s.at[to] = g.waiting.PushFront(s)
	} else {
		s.at[to] = g.waiting.PushBack(s)
	}
}

// remove removes a stream from a lane, if it waits there.
func (q *Queue[S]) remove(s *entry[S], from Lane) {
	if s.at[from] == nil {
		return
	}
	l := &q.lanes[from]
	g := l.named[s.class][s.namespace]
	g.waiting.Remove(s.at[from])
	s.at[from] = nil
	if g.waiting.Len() == 0 {
		l.of[s.class].Remove(g.in)
		delete(l.named[s.class], g.name)
	}
}

// leave removes a stream from the queue: from all lanes, with its turn, its unacknowledged bytes and its slots.
func (q *Queue[S]) leave(s *entry[S]) {
	for l := range allLanes {
		q.remove(s, l)
	}
	if s.granted {
		q.granted--
	}
	q.release(s, s.unacked)
	q.window.slots.leave(s)
	q.rollout.slots.leave(s)
	delete(q.streams, s.stream)
}

// grants grants turns within the budget.
func (q *Queue[S]) grants(now time.Time) (out []Grant[S]) {
	for q.granted < q.budget.Streams && q.bytes < q.budget.Bytes {
		l, any := q.pick(now)
		if !any {
			break
		}
		ring, g := q.lanes[l].front()
		s := g.waiting.Front().Value.(*entry[S])
		if s.granted { // in an urgent turn: it has its turn here afterwards
			q.remove(s, l)
			s.again[l], s.first = true, true
			continue
		}
		ring.MoveToBack(g.in)
		grant := Grant[S]{Stream: s.stream, Urgent: l < Config && (s.at[Config] != nil || s.at[tried] != nil)}
		for l := range allLanes {
			if l < Config || !grant.Urgent {
				q.remove(s, l)
			}
		}
		if l >= Config {
			q.window.slots.enter(s)
		}
		if l == tried {
			q.rollout.slots.enter(s)
			grant.Plan, s.plan = q.rollout.plan, q.rollout.plan
		}
		s.granted = true
		q.granted++
		out = append(out, grant)
	}
	return out
}

// pick returns the lane whose turn it is: the most urgent one, unless another has been passed over too often; false if
// no lane may have a turn.
func (q *Queue[S]) pick(now time.Time) (Lane, bool) {
	turn, waits := allLanes, [allLanes]bool{}
	for l := range allLanes {
		waits[l] = !q.lanes[l].empty() && (l < Config || q.window.open(now)) && (l != tried || q.rollout.open())
		if waits[l] && (turn == allLanes || q.passed[l] >= patience) {
			turn = l
		}
	}
	for l := range allLanes {
		if q.passed[l]++; !waits[l] || l == turn {
			q.passed[l] = 0
		}
	}
	return turn, turn != allLanes
}
