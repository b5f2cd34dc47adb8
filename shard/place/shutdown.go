package place

import (
	"cmp"
	"time"
)

// Leaving plans the orderly stop of a replica. The replica leaves the ring, sends its streams away over the grace
// period, and then ends the rest. Leaving has no clock; one goroutine calls Step.
type Leaving struct {
	Began time.Time     // when the stop was requested
	Grace time.Duration // duration of the whole stop, from Began (--shutdown-duration)
	// Notice is the longest time for other replicas to learn that this replica leaves, so that closed streams find
	// another owner. LeavingInput.HandedOver ends it earlier. 0: 3 s, but at most a fifth of Grace.
	Notice time.Duration
	// Margin is the time at the end of Grace for GOAWAY and last writes. 0: 2 s, but at most a fifth of Grace.
	Margin time.Duration

	since  time.Time // actual end of Notice, from which streams are sent away; zero: not yet
	closed float64   // fraction of a stream that remains from earlier steps (portion)
	moved  float64   // the same for streams counted in LeavingInput.Follow
}

// LeavingInput is the input of one step.
type LeavingInput struct {
	Now     time.Time
	Streams int  // streams that this replica still serves
	Follow  int  // part of Streams with an agent that moves them once it is notified
	Peers   int  // other ready replicas: Placement.Peers
	Led     bool // there is a leader, which will write a ring without this replica
	// HandedOver means that Member.LeavingRecorded is closed and Placement.InRing is false. From then on the ring names
	// other owners, and agents can be notified of them.
	HandedOver bool
}

// LeavingStep is the result of one step.
type LeavingStep struct {
	Close int  // number of streams to close, which the caller selects
	All   bool // streams counted in Follow are among them, since their time to move is over; false: only the others
	// NotifyBy is the deadline for notifying all agents, so that they move before the end. It is zero until HandedOver
	// or the end of Notice.
	NotifyBy time.Time
	GoAway   bool // end the gRPC servers (GOAWAY) and stop; the last step
}

// Step returns the actions due now. Call it once per StepEvery, since the number of streams to close is for one such
// interval. Nothing is due until HandedOver or the end of Notice. Then agents are notified in the first half of the
// remaining time, and move their streams. The other streams are closed evenly over the whole remaining time. So each
// client reconnects to a replica that has had time to plan for it, and the proxies of that replica are not delayed by
// a wave of joins. In the last eighth, streams that no agent has moved are closed as well.
//
// GoAway is due Margin before the end of Grace. Without streams or other ready replicas it is due at once, unless a
// leader has not yet handed over and Notice still runs.
func (l *Leaving) Step(in LeavingInput) LeavingStep {
	notice, margin := cmp.Or(l.Notice, min(3*time.Second, l.Grace/5)), cmp.Or(l.Margin, min(2*time.Second, l.Grace/5))
	elapsed := in.Now.Sub(l.Began)
	idle := in.Streams == 0 || in.Peers == 0 // without another replica, keeping streams helps no proxy
	// If this replica ended before the leader sees its departure, it would count as crashed and stay in the ring.
	unseen := in.Led && !in.HandedOver && elapsed < notice
	if idle && !unseen || elapsed >= l.Grace-margin {
		return LeavingStep{GoAway: true}
	}
	if !in.HandedOver && elapsed < notice {
		return LeavingStep{}
	}
	if l.since.IsZero() {
		l.since = in.Now
	}
	end := l.Began.Add(l.Grace - margin)
	whole, left := end.Sub(l.since), end.Sub(in.Now)
	step := LeavingStep{NotifyBy: l.since.Add(whole / 2), All: left < whole/8}
	step.Close = portion(&l.closed, in.Streams-in.Follow, left)
	if step.All {
		step.Close += portion(&l.moved, in.Follow, left)
	}
	return step
}

// portion returns the part of the streams to close in one step, so that all are closed when the remaining time (left)
// has passed. rest carries the fraction of a stream to the next step.
func portion(rest *float64, of int, left time.Duration) int {
	*rest += float64(of) * min(1, float64(stepEvery)/float64(left))
	n := min(int(*rest), of)
	*rest -= float64(n)
	return n
}

// stepEvery is the result of Leaving.StepEvery.
const stepEvery = 200 * time.Millisecond

// StepEvery returns the interval of calls of Step.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }
