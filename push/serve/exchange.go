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

// exchange is the state of one stream, and the only owner of the stream's delta.State. Other code passes events to it.
// Each event is a method that acquires the lock, changes the state, and returns the work that its caller must do. While
// the lock is held nothing is sent, and no function of another package is called that may block. The lock is released
// even if the state machine panics. If a method needs the lock held, its comment says so.
type exchange struct {
	proxy Proxy
	turn  atomic.Pointer[fanout.Stream]
	// markedAt contains, for each lane, the time since which the stream waits for a turn, in Unix nanoseconds. It is 0
	// if the stream does not wait.
	markedAt [fanout.NumLanes]atomic.Int64
	// movedAt is the time of the view's first change since the client was up to date, in Unix nanoseconds. It is 0 if
	// the client is up to date, or if the view has not changed since the stream joined.
	movedAt atomic.Int64
	// may is the number of the newest plan (manifest.Set.Plan) that may be sent on the stream. It is anyPlan until the
	// client is up to date for the first time, or until the time to resume is over.
	may atomic.Int64
	// debts are the changes of the view that the client has not acknowledged.
	debts ledger.Debts
	nacks atomic.Bool // refusals may have elements

	mu           sync.Mutex // guards the fields below
	state        *delta.State
	sender       sender
	pushed       bool // a response was sent since the client was up to date
	secretsHeld  bool // new versions of Secrets are held back, because the credential has expired
	rollout      rolloutState
	closed       bool                // the stream has ended, and nothing more is sent
	spoke        time.Time           // time of the first request for one of Envoy's types; zero before this request
	resumeOver   bool                // delta.State.EndResume was called
	cause        error               // reason why this side closed the stream
	waiting      [xds.NumTypes]int64 // by type: time since which the oldest response waits for its ACK, Unix nanoseconds
	agentWaiting []int64             // as waiting, by index in Config.AgentTypes; nil before the first such response
	refusals     []Refusal           // newest last, bounded, each version once
	retries      []quarantine.Key    // withheld versions that are sent as a retry, until the client answers
	reports      []delta.Report      // memory for advanced.reports, reused
	answers      []*answer           // answers that wait to be sent, oldest first, bounded
	// wakesAt is the time at which a timer requests a turn for configuration that waits for clusters. It is in Unix
	// nanoseconds, and 0 if there is no timer.
	wakesAt int64
}

// maxRefusals is the number of refusals that a stream keeps for debugging.
const maxRefusals = 16

// mark requests a turn in a lane.
func (x *exchange) mark(l fanout.Lane, now time.Time) {
	x.markedAt[l].CompareAndSwap(0, now.UnixNano())
	x.turn.Load().Mark(l)
}

// locked calls f with the lock held. The lock is released even if f panics.
func (x *exchange) locked(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// start sets the protocol state of a client that has joined.
func (x *exchange) start(state *delta.State) { x.locked(func() { x.state = state }) }

// open prepares the state for a client's first request of an agent type. The state will compare the offers with the
// list of resources in the request.
func (x *exchange) open(t xds.Type, all *offers) {
	x.locked(func() {
		x.state.Open(t)
		x.offer(all)
	})
}

// cost returns the number of bytes that must be granted (see grant) so that the state can keep all names of a request.
func (x *exchange) cost(m delta.Message) (bytes int) {
	x.locked(func() { bytes = x.state.Cost(m.Request) })
	return bytes
}

// grant permits the state to keep a number of further bytes.
func (x *exchange) grant(bytes int) { x.locked(func() { x.state.Grant(bytes) }) }

// retarget makes the view's newest set the target, so that the next request is compared with it.
func (x *exchange) retarget() { x.locked(func() { x.state.Target(x.proxy.Set()) }) }

// advanced is the effect of a request.
type advanced struct {
	reports  []delta.Report
	acked    int              // number of acknowledged bytes
	since    int64            // time of the acknowledged response, in Unix nanoseconds
	accepted []quarantine.Key // retries that the client has acknowledged
	refused  int64            // plan of a rollout of which the client refused a part; 0 without such a plan
	idle     bool             // nothing is left to send
	moved    time.Time        // result of converged
	leftOut  int              // number of ignored names
	surplus  int              // number of granted bytes that are not needed
}

// requested passes a client's request to the state, and returns its effect. It returns false if the stream has ended.
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
		*since = now.UnixNano() // the next response in flight waits from now on
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

// keep stores a refusal, and returns it with Since set. It drops an earlier refusal of the same version. If maxRefusals
// are stored, it drops the oldest refusal.
func (x *exchange) keep(r Refusal) Refusal {
	x.nacks.Store(true) // before the set is read, so that trackRefusals misses no later set
	x.locked(func() {
		r.Since, r.absent = r.Revision, !r.isIn(x.proxy.Set())
		x.refusals = slices.DeleteFunc(x.refusals, func(old Refusal) bool {
			return old.Type == r.Type && old.Name == r.Name && old.Version == r.Version
		})
		if len(x.refusals) == maxRefusals {
			x.refusals = append(x.refusals[:0], x.refusals[1:]...)
		}
		x.refusals = append(x.refusals, r)
	})
	return r
}

// end closes the exchange, so that nothing more is sent, and drops the waiting answers. The first call sets the cause
// and returns true.
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

// ending returns the reason for which this side ended the stream, and whether the client had joined.
func (x *exchange) ending() (cause error, joined bool) {
	x.locked(func() { cause, joined = x.cause, x.state != nil })
	return cause, joined
}

// ended reports whether the stream has ended.
func (x *exchange) ended() (is bool) {
	x.locked(func() { is = x.closed })
	return is
}

// converged checks whether the client is up to date, and records it. If the client is up to date, converged returns the
// time of the view's first change since it was last up to date. The client is up to date if it has acknowledged all of
// the view's newest set, except for clusters that are still warming. The result is zero if the client is not up to
// date, if the view has not changed, or if the change required no response to this client. The caller holds the lock,
// and nothing is left to send.
func (x *exchange) converged() (since time.Time) {
	n := x.debts.Len() // read first, so that the set contains the changes of these debts
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

// wake starts a timer for configuration that waits for clusters. The timer requests a turn when the configuration has
// waited long enough. Configuration that waits for another reason needs no timer, because a request of the client or a
// turn in a rollout will continue it. The caller holds the lock.
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
	ack    time.Duration // Config.AckDeadline
	resume time.Duration // Config.ResumeTime
	agents []AgentType
}

// overdue checks the client's deadlines. The result late is a type that the client has not acknowledged in time, or "".
// The result resumed reports whether the time to resume has just ended. The result idle reports whether nothing is left
// to send, and again reports whether the client must reconnect. For a stream that has ended, idle is true and the other
// results are zero.
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
		if x.sender.due { // the client reads in order, and must read the due response first
			x.waiting[t] = max(x.waiting[t], now.UnixNano())
		}
		// Clusters may warm without limit. A client that has vanished is detected by the pings of its connection.
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
