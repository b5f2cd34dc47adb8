package place

import "time"

// Leaving is the plan of a replica that was asked to stop: leave the ring, send the streams away over the grace period,
// then end what is left. It has no clock; one goroutine calls Step.
type Leaving struct {
	Began time.Time     // when it was asked to stop
	Grace time.Duration // until when it must be done (--shutdown-duration)
	// Notice is how long the others have to hear that this replica leaves, so that what is closed finds another owner: it
	// ends earlier where they have (Told, and the ring is without it). 0: 3 s, at most a fifth of Grace.
	Notice time.Duration
	// Margin is kept free at the end for GOAWAY and what is still to be written. 0: 2 s, at most a fifth of Grace.
	Margin time.Duration

	closed float64
}

// LeavingInput is what a step sees.
type LeavingInput struct {
	Now     time.Time
	Streams int  // that are left here
	Peers   int  // other replicas that are ready: Placement.Peers
	Told    bool // Member.Told is closed and Placement.InRing is false: agents know better owners
}

// LeavingStep is what to do now.
type LeavingStep struct {
	Close  int  // so many streams, chosen at random
	GoAway bool // end the gRPC servers (GOAWAY), and stop: nothing else is to come
}

// Step says what to do now; to be called some times a second. The streams are closed evenly over the time that there is:
// each moves to a replica that is warm for it, and the others do not see a wave.
func (l *Leaving) Step(in LeavingInput) LeavingStep {
	notice, margin := orDuration(l.Notice, 3*time.Second, l.Grace/5), orDuration(l.Margin, 2*time.Second, l.Grace/5)
	elapsed := in.Now.Sub(l.Began)
	if in.Streams == 0 || in.Peers == 0 || elapsed >= l.Grace-margin {
		return LeavingStep{GoAway: true} // with nobody to take over, waiting helps nobody
	}
	if !in.Told && elapsed < notice {
		return LeavingStep{}
	}
	// Of what is left, the part of the time that has passed since the last step: all is closed when the time is over.
	left := l.Grace - margin - elapsed
	l.closed += float64(in.Streams) * min(1, float64(stepEvery)/float64(left))
	n := min(int(l.closed), in.Streams)
	l.closed -= float64(n)
	return LeavingStep{Close: n}
}

// stepEvery is how often Leaving.Step is to be called.
const stepEvery = 200 * time.Millisecond

// StepEvery is how often Leaving.Step is to be called.
func (l *Leaving) StepEvery() time.Duration { return stepEvery }

func orDuration(value, otherwise, atMost time.Duration) time.Duration {
	if value == 0 {
		value = min(otherwise, atMost)
	}
	return value
}
