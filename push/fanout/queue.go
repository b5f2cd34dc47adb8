package fanout

import (
	"container/list"
	"time"
)

// Budget bounds the sends in progress. Numbers of 0 or less mean the defaults.
type Budget struct {
	Streams int // maximum number of streams with a turn at a time; 0: 100
	// Bytes limits the number of sent bytes that are not acknowledged; 0: 256 MiB. Bytes of slow streams do not count.
	// No turn is granted while the limit is reached. Turns that were granted before may exceed the limit.
	Bytes   int
	Slow    time.Duration // a stream with unacknowledged bytes of this age is slow; 0: 1 s
	Rollout int           // minimum number of streams that get a plan of configuration first (rollout); 0: 8
	// WindowOff switches the concurrency window off, to measure its effect.
	WindowOff bool
}

// patience is the number of grants to other lanes after which a waiting lane precedes more urgent lanes.
const patience = 4

// Op is the type of an Event.
type Op uint8

// The types of events. The fields of Event that a type uses, besides Op and Stream, are in parentheses.
const (
	Join   Op = iota // a stream was added (Namespace, First)
	Leave            // a stream has left
	Mark             // there may be something to send on a stream (Lane, Plan)
	Done             // a stream's turn is over (Bytes sent)
	Ack              // a stream's client has acknowledged (Bytes)
	Accept           // the client has acknowledged everything that was sent of a plan (Plan)
	Skip             // nothing of a plan was sent, or the client's ACK proves nothing about other clients (Plan)
	Refuse           // the client refused a part of a plan (Plan, By)
	Tick             // time has passed
	Press            // goroutines' waits for a processor were measured (Wait)
)

// Event is an input of Queue.Step. A value of the type S identifies a stream.
type Event[S comparable] struct {
	Op        Op
	Stream    S // not used by Tick and Press
	Namespace string
	First     bool // the stream belongs to a gateway, and precedes streams of other proxies
	Lane      Lane
	// Plan is the plan of Accept, Skip and Refuse. For Mark in the lane Config, it is a plan that was not sent on the
	// stream yet, or 0.
	Plan  int64
	By    string        // the identity of the client that refused
	Bytes int           // number of bytes that were sent (Done) or acknowledged (Ack)
	Wait  time.Duration // 90th percentile of the waits for a processor
}

// Grant is an output of Queue.Step: a stream gets a turn to send. The caller must send on the stream, and pass an event
// Done to Step afterwards.
type Grant[S comparable] struct {
	Stream S
	Urgent bool  // only urgent changes may be sent now; configuration waits for a later turn
	Plan   int64 // the newest plan that may be sent on the stream from now on; 0: the previous number still holds
}

const (
	// tried is the lane of streams that wait for a plan of configuration that is new to them. A new plan is sent to a
	// few streams first (rollout.go). A stream that waits in this lane does not wait in Config.
	tried    = NumLanes
	allLanes = NumLanes + 1
)

// Queue decides which streams get a turn to send. A stream is in each lane at most once, however often it is marked.
// Queue has no clock, and is not safe for concurrent use.
type Queue[S comparable] struct {
	budget  Budget
	streams map[S]*entry[S]
	lanes   [allLanes]rings[S]
	granted int
	bytes   int           // bytes charged against the budget
	charged *list.List    // of *entry[S] with a charge, the oldest charge first
	passed  [allLanes]int // by lane: number of grants to other lanes while this lane waits
	rollout rollout[S]
	window  concurrencyWindow[S]
}

// rings holds the streams that wait in one lane. A ring is a list of namespaces that get turns alternately. The first
// ring holds the streams of gateways, and the second ring all others. The first ring precedes the second.
type rings[S comparable] struct {
	of    [2]list.List // of *group[S]
	named [2]map[string]*group[S]
}

// empty reports whether no stream waits in the lane.
func (l *rings[S]) empty() bool { return l.of[0].Len()+l.of[1].Len() == 0 }

// front returns the group (the streams of one namespace) that is next, and the ring with this group. The lane must not
// be empty.
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

// entry is one stream of the queue.
type entry[S comparable] struct {
	stream    S
	namespace string
	class     uint8                   // 0: a gateway, 1: any other proxy
	at        [allLanes]*list.Element // by lane: element in a group; nil: does not wait in the lane
	slots     [numSlots]*list.Element // by kind of slot (slots.go); nil: no slot
	sentAt    [numSlots]time.Time     // by kind of slot: end of the turn that occupied it; zero: not ended
	granted   bool                    // the stream has a turn
	// the newest plan for which the stream had a turn; 0 after Skip or Refuse, so that any plan counts as new
	plan     int64
	again    [allLanes]bool // marked during the turn, by lane
	first    bool           // the stream was next in a lane of configuration during its urgent turn
	unacked  int            // charged bytes
	forgiven int            // unacknowledged bytes that are no longer charged, because the stream was slow
	early    int            // bytes that were acknowledged before the event Done
	since    time.Time      // time of the oldest charge
	charge   *list.Element  // element in Queue.charged
}

// NewQueue returns an empty Queue. Numbers of 0 or less in b mean the defaults.
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

// Step processes one event at the time now, and returns the granted turns. The result is nil if no turn is granted.
// Step ignores events of streams that have not joined, a second Join, and a Done without a turn. Each call must have
// the same or a later time than the call before. The caller owns the result.
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

// Next returns the time at which Step must be called with Tick if there are no other events. It is the earliest time at
// which the passing of time alone may permit more turns. For example, a stream becomes slow, or the pause of the
// concurrency window ends. The result ok is false if there is no such time.
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

// configWaits reports whether streams wait in the lanes of configuration.
func (q *Queue[S]) configWaits() bool { return !q.lanes[Config].empty() || !q.lanes[tried].empty() }

// Pressing reports whether Step needs events of the type Press. They are needed while endpoints change and
// configuration is being sent or waits. With Budget.WindowOff the result is false.
func (q *Queue[S]) Pressing(now time.Time) bool {
	return q.window.on(now) && (q.window.slots.count() > 0 || q.configWaits())
}

// Waiting returns the number of streams that wait in a lane. The lane must be below NumLanes. The number for Config
// includes streams that wait for a plan that is new to them.
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

// mark adds a stream to a lane, or to the lane tried if the plan is new to the stream. A stream with a turn is added
// when the turn ends.
func (q *Queue[S]) mark(s *entry[S], l Lane, plan int64, now time.Time) {
	if l == Endpoints {
		q.window.last = now
	}
	if l == Config && plan > s.plan { // otherwise there is no plan, or the stream has had a turn for it
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

// done ends a turn. If the stream was marked during the turn, it now waits for the next turn.
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

// mayRest frees a stream's slot in the concurrency window (window.go) if the stream has no turn and its client has
// acknowledged all bytes.
func (q *Queue[S]) mayRest(s *entry[S]) {
	if !s.granted && s.unacked == 0 {
		q.window.slots.leave(s)
	}
}

// push adds a stream to a lane, behind the waiting streams of its namespace. If first is set, it adds the stream before
// these streams.
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

// leave removes a stream from all lanes, and frees its turn, its charge and its slots.
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
		if s.granted { // the stream has an urgent turn, and is added to this lane again afterwards
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

// pick returns the lane that gets the next grant. It is the least urgent lane that was passed over too often, if there
// is one. Otherwise it is the most urgent lane. Only lanes that may get a grant now count. If no lane may get a grant,
// pick returns false.
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
