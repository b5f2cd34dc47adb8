package place

import (
	"cmp"
	"time"
)

// Leaving plans the orderly stop of a replica. The replica leaves the ring, sends its streams away during the grace
// period, and then ends the remaining streams. Leaving reads no clock (LeavingInput.Now). Only one goroutine may call
// Step.
type Leaving struct {
	Began time.Time     // when the stop was requested
	Grace time.Duration // duration of the whole stop, from Began (--shutdown-duration)
	// Notice is the longest wait before the first stream is closed. In this time, the other replicas learn that this
	// replica leaves. LeavingInput.HandedOver ends the wait earlier. 0 means 3 s, but at most a fifth of Grace.
	Notice time.Duration
	// Margin is the time at the end of Grace for GOAWAY and last writes. 0 means 2 s, but at most a fifth of Grace.
	Margin time.Duration

	since  time.Time // time of the first step that sends streams away; zero: there was no such step
	closed float64   // fraction of a stream that portion carries to the next step
	moved  float64   // like closed, for the streams counted in LeavingInput.Follow
}

// LeavingInput is the input of one step.
type LeavingInput struct {
	Now     time.Time
	Streams int  // streams that this replica still serves
	Follow  int  // number of these streams that their agents move after a notification
	Peers   int  // other ready replicas (Placement.Peers)
	Led     bool // there is a leader, which will write a ring without this replica
	// HandedOver means that the departure is recorded (Member.LeavingRecorded is closed), and that the ring no longer
	// contains this replica (Placement.InRing is false). The ring now names other owners (replicas) for all proxies,
	// and agents can be notified of them.
	HandedOver bool
}

// LeavingStep is the result of one step.
type LeavingStep struct {
	Close int  // number of streams to close; the caller selects the streams
	All   bool // Close includes the streams counted in LeavingInput.Follow, which have had time to move
	// NotifyBy is the deadline for notifying all agents, so that their streams move before the end. It is zero until
	// HandedOver or the end of Notice, and in the last step.
	NotifyBy time.Time
	GoAway   bool // last step: end the gRPC servers (GOAWAY) and stop; the other fields are then zero
}

// Step returns the actions due now. Call it once per StepEvery, because LeavingStep.Close is for one such interval.
// Until HandedOver or the end of Notice, no stream is closed and no agent is notified. After that wait, agents are
// notified in the first half of the remaining time, and move their streams. All other streams are closed evenly over
// the whole remaining time. So the other replicas do not receive all clients at once. In the last eighth of the time,
// streams that no agent has moved are closed as well.
//
// GoAway is due when no more than Margin remains of Grace. It is due earlier if there are no streams or no other ready
// replicas. While there is a leader, GoAway still waits for HandedOver or the end of Notice.
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

// portion returns the number of streams to close in one step. With this number in each step, all streams are closed
// when the remaining time, left, has passed. The parameter streams is the number of streams. The variable *rest carries
// the fraction of a stream to the next step.
func portion(rest *float64, streams int, left time.Duration) int {
	*rest += float64(streams) * min(1, float64(stepEvery)/float64(left))
	n := min(int(*rest), streams)
	*rest -= float64(n)
	return n
}

// stepEvery is the interval between two calls of Leaving.Step.
const stepEvery = 200 * time.Millisecond

// StepEvery returns the interval between two calls of Step: 200 ms.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }
