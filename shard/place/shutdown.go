package place

import (
	"cmp"
	"time"
)

// Leaving is the plan of a replica that was asked to stop: leave the ring, send the streams away over the grace period,
// then end the rest. It has no clock; one goroutine calls Step.
type Leaving struct {
	Began time.Time     // when it was asked to stop
	Grace time.Duration // time until it must be done (--shutdown-duration)
	// Notice is the time for others to learn that this replica leaves, so that closed streams find another owner. It
	// ends early with LeavingInput.HandedOver. 0: 3 s, at most a fifth of Grace.
	Notice time.Duration
	// Margin is the time kept at the end for GOAWAY and last writes. 0: 2 s, at most a fifth of Grace.
	Margin time.Duration

	since  time.Time // when the others knew; zero: they do not yet
	closed float64
	moved  float64
}

// LeavingInput is the input of one step.
type LeavingInput struct {
	Now     time.Time
	Streams int  // remaining here
	Follow  int  // of them, those whose agents move them once notified
	Peers   int  // other ready replicas: Placement.Peers
	Led     bool // there is a leader, which writes the ring without this replica
	// HandedOver: Member.LeavingRecorded is closed and Placement.InRing is false, so agents can be notified of other
	// owners.
	HandedOver bool
}

// LeavingStep is the result of one step.
type LeavingStep struct {
	Close int  // number of streams to close, chosen at random
	All   bool // also streams that move by themselves, whose time is over; else only others
	// NotifyBy is the deadline for notifying all agents, so that they move before the end; zero: unknown yet.
	NotifyBy time.Time
	GoAway   bool // end the gRPC servers (GOAWAY) and stop: this is the last step
}

// Step returns what to do now; it must be called several times a second. Agents are notified in the first half of the
// available time, and move by themselves. Other streams are closed evenly over all of it: each reaches a replica that
// is warm for it, and the present proxies notice no wave. Streams that an agent has not moved by the end are closed
// too.
func (l *Leaving) Step(in LeavingInput) LeavingStep {
	notice, margin := cmp.Or(l.Notice, min(3*time.Second, l.Grace/5)), cmp.Or(l.Margin, min(2*time.Second, l.Grace/5))
	elapsed := in.Now.Sub(l.Began)
	idle := in.Streams == 0 || in.Peers == 0 // without another replica, keeping streams helps no proxy
	// A replica that ends before the leader sees its departure would count as crashed, and stay in the ring.
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

// portion returns the number of streams for one step, so that none are left when the time is over. rest accumulates
// fractions.
func portion(rest *float64, of int, left time.Duration) int {
	*rest += float64(of) * min(1, float64(stepEvery)/float64(left))
	n := min(int(*rest), of)
	*rest -= float64(n)
	return n
}

// stepEvery is the interval of Leaving.Step.
const stepEvery = 200 * time.Millisecond

// StepEvery returns the interval of Step.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }
