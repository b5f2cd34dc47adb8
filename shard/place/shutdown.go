package place

import (
	"cmp"
	"time"
)

// Leaving is the plan of a replica that was asked to stop: leave the ring, send the streams away over the grace period,
// then end what is left. It has no clock; one goroutine calls Step.
type Leaving struct {
	Began time.Time     // when it was asked to stop
	Grace time.Duration // until when it must be done (--shutdown-duration)
	// Notice is how long the others have to hear that this replica leaves, so that what is closed finds another owner: it
	// ends earlier where they have (LeavingInput.HandedOver). 0: 3 s, at most a fifth of Grace.
	Notice time.Duration
	// Margin is kept free at the end for GOAWAY and what is still to be written. 0: 2 s, at most a fifth of Grace.
	Margin time.Duration

	since  time.Time // the others know; zero: they do not yet
	closed float64
	moved  float64
}

// LeavingInput is what a step sees.
type LeavingInput struct {
	Now     time.Time
	Streams int  // that are left here
	Follow  int  // of them, those whose agents move them once they are notified of the owner
	Peers   int  // other replicas that are ready: Placement.Peers
	Led     bool // there is a leader, which writes the ring without this replica
	// HandedOver: Member.LeavingRecorded is closed and Placement.InRing is false, so agents can be notified of other owners.
	HandedOver bool
}

// LeavingStep is what to do now.
type LeavingStep struct {
	Close int  // so many streams, chosen at random
	All   bool // also of those that move by themselves: these have had their time; else only of the others
	// NotifyBy is when all agents are to be notified of their owners, so that they have moved before the end; zero: not yet known.
	NotifyBy time.Time
	GoAway   bool // end the gRPC servers (GOAWAY), and stop: nothing else is to come
}

// Step says what to do now; to be called some times a second. Agents are notified in the first half of the time that there is,
// and move by themselves; the streams of others are closed evenly over all of it: each comes to a replica that is warm for it,
// and the proxies that are there do not see a wave. What an agent has not moved at the end is closed too.
func (l *Leaving) Step(in LeavingInput) LeavingStep {
	notice, margin := cmp.Or(l.Notice, min(3*time.Second, l.Grace/5)), cmp.Or(l.Margin, min(2*time.Second, l.Grace/5))
	elapsed := in.Now.Sub(l.Began)
	idle := in.Streams == 0 || in.Peers == 0 // with nobody to take over, keeping streams helps nobody
	// A replica that ended before the leader saw that it leaves would count as crashed, and stay in the ring.
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

// portion is the part of what is left that a step takes, so that nothing is left when the time is over; rest is what is kept
// of a whole one.
func portion(rest *float64, of int, left time.Duration) int {
	*rest += float64(of) * min(1, float64(stepEvery)/float64(left))
	n := min(int(*rest), of)
	*rest -= float64(n)
	return n
}

// stepEvery is how often Leaving.Step is to be called.
const stepEvery = 200 * time.Millisecond

// StepEvery is how often Leaving.Step is to be called.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }
