package serve

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
)

// exchange is the state between a client and the server on one stream, and the only owner of the stream's delta.State.
// Other code passes events to it: each event is a method that acquires the lock, changes the state, and returns the
// work for its caller. While the lock is held nothing is sent, and only the fan-out (which notes a mark) and Proxy.Set
// (which reads) are called. The lock is released even if the state machine panics. Methods that are called with the
// lock held say so.
type exchange struct {
	proxy Proxy
	turn  atomic.Pointer[fanout.Stream]
	// markedAt contains, for each lane, when the stream began to wait for a turn, in Unix nanoseconds; 0: it does not
	// wait.
	markedAt [fanout.NumLanes]atomic.Int64
	// movedAt is when the view first moved since the client was up to date, in Unix nanoseconds; 0: it is up to date.
	movedAt atomic.Int64
	// may is the newest permitted plan (manifest.Set.Plan); anyPlan until the client is up to date for the first time.
	may atomic.Int64
	// debts are the changes of the view that the client has not acknowledged.
	debts ledger.Debts

	mu           sync.Mutex // guards the fields below
	state        *delta.State
	sender       sender
	pushed       bool // a response was sent since the client was up to date
	secretsHeld  bool // new versions of Secrets are held back, because the credential has ended
	rollout      rolloutState
	closed       bool      // no further sends
	spoke        time.Time // Envoy's first request; agents may request agent resources before; zero: none yet
	resumeOver   bool
	cause        error               // why this side closed it
	waiting      [xds.NumTypes]int64 // since when the oldest response waits for its ACK, by type; unix nanoseconds
	agentWaiting []int64             // the same for Config.AgentTypes; nil before the first response of these
	refusals     []Refusal           // newest last, bounded
	retries      []quarantine.Key    // withheld versions that only this stream is sent, until it has answered
	reports      []delta.Report      // reused
	answers      []*answer           // waiting to be sent, oldest first, bounded
	// wakesAt is when a timer marks the stream, because configuration has waited for clusters; unix nanoseconds, 0: no
	// timer.
	wakesAt int64
}

// maxRefusals bounds the refusals that a stream keeps for debugging.
const maxRefusals = 16

// mark requests a turn in a lane.
func (x *exchange) mark(l fanout.Lane, now time.Time) {
	x.markedAt[l].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Mark(l)
}

// locked runs f with the lock, which is released even if f panics.
func (x *exchange) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// start sets the state of a client that has joined.
func (x *exchange) start(state *delta.State) { x.locked(func() { x.state = state }) }

// open prepares the state for a client's first request of an agent type: the list of held resources in the request is
// then compared with the offers.
func (x *exchange) open(t xds.Type, all *offers) {
	x.locked(func() {
		x.state.Open(t)
		x.offer(all)
	})
}

// cost returns the bytes that must be granted so that all of a request can be kept.
func (x *exchange) cost(m delta.Message) (bytes int) {
	x.locked(func() { bytes = x.state.Cost(m.Request) })
	return bytes
}

// grant permits the state to keep this many more bytes.
func (x *exchange) grant(bytes int) { x.locked(func() { x.state.Grant(bytes) }) }

// retarget makes the view's newest set the target, so that the next request is compared with it.
func (x *exchange) retarget() { x.locked(func() { x.state.Target(x.proxy.Set()) }) }

// advanced is the effect of a request.
type advanced struct {
	reports  []delta.Report
	acked    int              // bytes
	since    int64            // when the acknowledged response was sent; unix nanoseconds
	accepted []quarantine.Key // retries that it has acknowledged
	refused  int64            // the plan that was tried on the stream, if it refused a part of it
	idle     bool             // nothing is left to send
	moved    time.Time        // result of converged
	leftOut  int              // number of ignored names
	surplus  int              // bytes that were paid for and are not needed
}

// requested passes a client's request to the state, and returns its effect; false: the stream was closed.
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
	if m.Initial != nil { // the client's list may be newer than the set of the last turn
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

// keep adds a refusal to the newest ones, which are kept for debugging.
func (x *exchange) keep(r Refusal) {
	x.locked(func() {
		if len(x.refusals) == maxRefusals {
			x.refusals = append(x.refusals[:0], x.refusals[1:]...)
		}
		x.refusals = append(x.refusals, r)
	})
}

// end closes the exchange, with no further sends, and drops the waiting answers. It returns true for the first call,
// whose cause is kept.
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

// ending returns why this side ended the stream, and whether its client had joined.
func (x *exchange) ending() (cause error, joined bool) {
	x.locked(func() { cause, joined = x.cause, x.state != nil })
	return cause, joined
}

func (x *exchange) ended() (is bool) {
	x.locked(func() { is = x.closed })
	return is
}

// converged returns when the view of a client that is now up to date first moved since the last time. The caller holds
// the lock, and nothing is left to send. A client is up to date when everything is acknowledged, except for clusters
// that are still warming. The zero time means that the client is not up to date, the view did not move, or the move
// changed nothing for this client. If an acknowledgement comes between a move of the view and its turn, the client has
// the old set, and is up to date only with the new one.
func (x *exchange) converged() (since time.Time) {
	n := x.debts.Len() // read before the set, which so contains their changes
	set := x.proxy.Set()
	if !x.state.Settled() || !x.state.Aims(set) {
		return since
	}
	x.grown(set)
	x.pay(n)
	if at := x.movedAt.Swap(0); at != 0 && x.pushed {
		since = time.Unix(0, at)
	}
	x.pushed = false
	return since
}

// wake marks the stream once configuration has waited long enough for clusters. Configuration that may go but cannot be
// sent waits for a request of the client or for its turn in a rollout; both mark the stream. The caller holds the lock.
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
	ack    time.Duration // time for an ACK before the stream is closed
	resume time.Duration // time in which a resumed stream must request all types that it held
	agents []AgentType
}

// overdue returns the type that the client has not acknowledged in time (empty: none), whether its resume has just
// ended, whether nothing is left to send, and whether it must reconnect. For a closed stream all results are zero,
// except that idle is true.
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
		if x.sender.due { // the client cannot acknowledge before it has read the due response
			x.waiting[t] = max(x.waiting[t], now.UnixNano())
		}
		// A vanished client is detected by the pings of its connection and by other responses.
		if t == xds.Cluster && x.state.MayWarm() {
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
