package place

import (
	"cmp"
	"time"
)

// Leaving plans the orderly stop of a replica. The replica leaves the ring, sends its streams away over the grace
// period, and then ends the remaining streams. Leaving has no clock. One goroutine calls Step.
type Leaving struct {
	Began time.Time     // when the stop was requested
	Grace time.Duration // duration of the whole stop, from Began (--shutdown-duration)
	// Notice is the longest time for other replicas to learn that this replica leaves, so that clients of closed
	// streams find another owner. LeavingInput.HandedOver ends it earlier. 0: 3 s, but at most a fifth of Grace.
	Notice time.Duration
	// Margin is the time at the end of Grace for GOAWAY and last writes. 0: 2 s, but at most a fifth of Grace.
	Margin time.Duration

	since  time.Time // first step that sends streams away; zero: not yet
	closed float64   // fraction of a stream that remains from earlier steps (portion)
	moved  float64   // such a fraction for streams counted in LeavingInput.Follow
}

// LeavingInput is the input of one step.
type LeavingInput struct {
	Now     time.Time
	Streams int  // streams that this replica still serves
	Follow  int  // part of Streams, with agents that move the streams once notified
	Peers   int  // other ready replicas (Placement.Peers)
	Led     bool // there is a leader, which will write a ring without this replica
	// HandedOver means that Member.LeavingRecorded is closed and Placement.InRing is false. From then on the ring names
	// other owners, and agents can be notified of them.
	HandedOver bool
}

// LeavingStep is the result of one step.
type LeavingStep struct {
	Close int  // number of streams to close, which the caller selects
	All   bool // Close includes streams counted in Follow, since their time to move is over; false: it does not
	// NotifyBy is the deadline for notifying all agents, so that their streams move before the end. It is zero until
	// HandedOver or the end of Notice, and in the last step.
	NotifyBy time.Time
	GoAway   bool // last step: end the gRPC servers (GOAWAY) and stop; the other fields are then zero
}

// Step returns the actions due now. Call it once per StepEvery, since the number of streams to close is for one such
// interval. Until HandedOver or the end of Notice, no stream is closed and no agent is notified. Then agents are
// notified in the first half of the remaining time, and move their streams. All other streams are closed evenly over
// the whole remaining time. So each client reconnects to a replica that has had time to plan for it, and a wave of
// joins does not delay the proxies of that replica. In the last eighth of the time, streams that no agent has moved are
// closed as well.
//
// GoAway is due Margin before the end of Grace. It is due at once if there are no streams or no other ready replicas,
// except while a leader still has to hand over and Notice runs.
func (l *Leaving) Step(in LeavingInput) LeavingStep {
	notice, margin := cmp.Or(l.Notice, min(3*time.Second, l.Grace/5)), cmp.Or(l.Margin, min(2*time.Second, l.Grace/5))
	elapsed := in.Now.Sub(l.Began)
	idle := in.Streams == 0 || in.Peers == 0 // without another replica, waiting helps no proxy
	// A replica that ends before the leader sees its departure counts as crashed, and stays in the ring for some time.
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

// portion returns the number of streams to close in one step, so that all streams (of) are closed when the remaining
// time (left) has passed. rest carries the fraction of a stream to the next step.
func portion(rest *float64, of int, left time.Duration) int {
	*rest += float64(of) * min(1, float64(stepEvery)/float64(left))
	n := min(int(*rest), of)
	*rest -= float64(n)
	return n
}

// stepEvery is the result of Leaving.StepEvery.
const stepEvery = 200 * time.Millisecond

// StepEvery returns the interval between two calls of Step: 200 ms.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }
