package serve

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// exchange is what is under way between a client and the server on one stream, and the only owner of the stream's delta.State. Others hand
// it events: each event is a method that takes the lock, changes the state, and returns what its caller is to do. While the lock is held nothing
// is sent, and nothing is called but the fan-out (which only takes note) and Proxy.Set (which only reads). It is released also where the state
// machine panics. A method that is called with the lock held says so.
type exchange struct {
	proxy    Proxy
	turn     atomic.Pointer[fanout.Stream]
	markedAt [fanout.NumLanes]atomic.Int64 // since when it waits for a turn in a lane; unix nanoseconds, 0: it waits for none
	movedAt  atomic.Int64                  // when the view moved first since the client was up to date; unix nanoseconds, 0: it is up to date
	may      atomic.Int64                  // the newest plan (manifest.Set.Plan) that it may be sent; anyPlan until it is up to date once

	mu           sync.Mutex // guards what follows
	state        *delta.State
	sender       sender
	pushed       bool // something was sent since the client was up to date
	secretsHeld  bool // new versions of Secrets were held back, because the credential has ended
	rollout      rolloutState
	closed       bool      // nobody sends afterwards
	spoke        time.Time // when Envoy did first: an agent may ask for agent resources before; zero: not yet
	resumeOver   bool
	cause        error               // why it was closed from here
	waiting      [xds.NumTypes]int64 // since when the oldest response waits for its ACK, by type; unix nanoseconds
	agentWaiting []int64             // as waiting, of Config.AgentTypes; nil: nothing of them was sent
	refusals     []Refusal           // newest last, a few
	retries      []quarantine.Key    // withheld versions that it is sent as the only one, until it has answered
	reports      []delta.Report      // reused
	answers      []*answer           // that wait to be sent, oldest first; a few
	wakesAt      int64               // when a timer marks the stream, because configuration has waited for clusters; unix nanoseconds, 0: none does
}

// maxRefusals is how many refusals are kept for debugging, a stream.
const maxRefusals = 16

// mark asks for a turn.
func (x *exchange) mark(l fanout.Lane, now time.Time) {
	x.markedAt[l].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Mark(l)
}

// locked runs f with the lock, which is released also where f panics.
func (x *exchange) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// start is the event that the client has joined.
func (x *exchange) start(state *delta.State) { x.locked(func() { x.state = state }) }

// open is the event that the client is about to ask for an agent type for the first time: what it says that it holds is compared with what
// there is.
func (x *exchange) open(t xds.Type, all *offers) {
	x.locked(func() {
		x.state.Open(t)
		x.offer(all)
	})
}

// cost is what has to be granted so that all of a request can be kept, bytes.
func (x *exchange) cost(m delta.Message) (bytes int) {
	x.locked(func() { bytes = x.state.Cost(m.Request) })
	return bytes
}

// grant is the event that so many bytes more may be kept.
func (x *exchange) grant(bytes int) { x.locked(func() { x.state.Grant(bytes) }) }

// retarget is the event that the view has a set which the next request is to be compared with.
func (x *exchange) retarget() { x.locked(func() { x.state.Target(x.proxy.Set()) }) }

// advanced is what a request has brought about.
type advanced struct {
	reports  []delta.Report
	acked    int              // bytes
	since    int64            // when what it answers was sent; unix nanoseconds
	accepted []quarantine.Key // retries that it has acknowledged
	refused  int64            // the plan that was tried on it, where it has refused something
	idle     bool             // there is nothing to be sent
	moved    time.Time        // see converged
	leftOut  int              // names
	surplus  int              // bytes that were paid for and are not needed
}

// requested is the event that a request of a client has come; false: the stream was closed.
func (x *exchange) requested(m delta.Message, now time.Time) (a advanced, open bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return a, false
	}
	if _, is := agentType(m.Type); x.spoke.IsZero() && !is {
		x.spoke = now
	}
	x.state.Tick(now)
	if m.Initial != nil { // what the client says it has may be newer than what the last turn saw
		x.state.Target(x.proxy.Set())
	}
	before, leftOut := x.state.Unacked(), x.state.LeftOut()
	x.reports = x.state.Request(m.Request, x.reports[:0])
	a.leftOut, a.surplus = x.state.LeftOut()-leftOut, x.state.Surplus()
	since := x.waitingSince(m.Type)
	a.reports, a.acked, a.since = x.reports, before-x.state.Unacked(), *since
	if a.acked > 0 {
		*since = now.UnixNano() // of the next one in flight
	}
	if slices.ContainsFunc(a.reports, func(r delta.Report) bool { return r.Kind == delta.Nacked && r.Type < xds.NumTypes }) {
		a.refused = x.refused()
	}
	a.accepted = x.acknowledgedRetries()
	x.took()
	if a.idle = x.state.Idle(); a.idle {
		a.moved = x.converged()
	}
	return a, true
}

// keep is the event that the client refused something.
func (x *exchange) keep(r Refusal) {
	x.locked(func() {
		if len(x.refusals) == maxRefusals {
			x.refusals = append(x.refusals[:0], x.refusals[1:]...)
		}
		x.refusals = append(x.refusals, r)
	})
}

// end is the event that the stream ends: nobody sends afterwards. false: it had ended before.
func (x *exchange) end(cause error) (first bool) {
	var unsent []*answer
	x.locked(func() {
		if first = !x.closed; first {
			x.closed, x.cause = true, cause
		}
		unsent, x.answers = x.answers, nil
	})
	for _, one := range unsent {
		one.over()
	}
	return first
}

// ending says why the stream was ended from here, and whether its client had joined.
func (x *exchange) ending() (cause error, joined bool) {
	x.locked(func() { cause, joined = x.cause, x.state != nil })
	return cause, joined
}

func (x *exchange) ended() (is bool) {
	x.locked(func() { is = x.closed })
	return is
}

// converged is called, with the lock held, where nothing is left to send. Once all of that is acknowledged, clusters that warm aside, the client is up
// to date: it says when its view moved first since it was the last time. Zero: the client is not up to date, or the view
// did not move, or that changed nothing for this client. An acknowledgement may come between a move of the view and the turn
// that takes it up: then the client has the old set, and is not up to date before it has the new one.
func (x *exchange) converged() (since time.Time) {
	set := x.proxy.Set()
	if !x.state.Settled() || !x.state.Aims(set) {
		return since
	}
	x.grown(set)
	if at := x.movedAt.Swap(0); at != 0 && x.pushed {
		since = time.Unix(0, at)
	}
	x.pushed = false
	return since
}

// wake has the stream marked when what waits for clusters has waited for long enough. What has, and cannot be sent, waits for an answer of the
// client's or for the turn of a rollout, which mark the stream. Called with the lock held.
func (x *exchange) wake(now time.Time) {
	at, waits := x.state.Wake()
	if !waits || !at.After(now) || x.wakesAt != 0 && x.wakesAt <= at.UnixNano() {
		return
	}
	x.wakesAt = at.UnixNano()
	time.AfterFunc(at.Sub(now), func() {
		open := false
		x.locked(func() { open, x.wakesAt = !x.closed, 0 })
		if open {
			x.mark(fanout.Answers, time.Now())
		}
	})
}

// limits are the deadlines of clients.
type limits struct {
	ack    time.Duration // a response that is not acknowledged for so long closes the stream
	resume time.Duration // how long a resumed stream has to ask for all the types it held
	agents []AgentType
}

// overdue says what the client has not acknowledged in time (empty: nothing), whether its resume is over just now, whether there is
// nothing to be sent, and whether it is to come again. Of a stream that was closed: none of this.
func (x *exchange) overdue(now time.Time, limits limits) (late string, resumed, idle, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return "", false, true, false
	}
	resumed = !x.resumeOver && !x.spoke.IsZero() && now.Sub(x.spoke) > limits.resume
	if resumed {
		x.resumeOver = true
		x.state.EndResume()
	}
	for t := range xds.NumTypes {
		if x.sender.due { // the client cannot acknowledge before it has what is due
			x.waiting[t] = max(x.waiting[t], now.UnixNano())
		}
		if t == xds.Cluster && x.state.MayWarm() { // a client that is gone does not answer the pings of its connection, nor what else it is sent
			continue
		}
		if x.state.InFlight(t) > 0 && now.Sub(time.Unix(0, x.waiting[t])) > limits.ack {
			late = t.String()
		}
	}
	if late == "" {
		late = x.lateAgentType(now, limits)
	}
	if resumed {
		x.grown(x.proxy.Set())
	}
	return late, resumed, x.state.Idle(), x.state.Again()
}
