package member

import (
	"bytes"
	"time"
)

// Pace of writes. The watch of every replica receives each write, and etcd stores each write until compaction. Load and
// revision change all the time. Changes of these fields therefore wait longest. A change of the state to Ready or
// Leaving is written at once.
const (
	statusEvery = 2 * time.Second  // between two writes, if a field of status changed
	loadEvery   = 10 * time.Second // between two writes, if only other fields changed, such as load and revision
)

// rampSteps is the number of equal steps in which a weight grows to the full weight. A ramp has the same number of
// equal parts. The weight is full in the last part.
const rampSteps = 4

// Weight returns the present weight of a replica. The parameter since is the time that has passed since the replica
// became ready; a negative time counts as 0. ramp is the time in which the weight grows, and full is the full weight.
// The weight begins with a quarter of full, and grows by a quarter of full after each quarter of ramp. So it reaches
// full after three quarters of ramp. If ramp is 0 or less, the result is full. If full is at least 1, the result is at
// least 1.
func Weight(since, ramp time.Duration, full uint32) uint32 {
	if ramp <= 0 || since >= ramp {
		return full
	}
	step := 1 + uint32(max(since, 0)*rampSteps/ramp)
	return max(1, full*min(step, rampSteps)/rampSteps)
}

// writes decides when to write a record. It has no clock.
type writes struct {
	last  Record
	asked State  // state that Member.Record wanted; last may have another state (Member.write)
	raw   []byte // encoded last; nil: nothing was written under the present lease
	at    time.Time
}

// due reports whether the record next should be written now.
func (w *writes) due(now time.Time, next Record) bool {
	every := loadEvery
	switch {
	case w.raw == nil, next.State != w.asked:
		return true
	case bytes.Equal(next.Encode(), w.raw):
		return false
	case statusOf(next) != statusOf(w.last):
		every = statusEvery
	}
	return now.Sub(w.at) >= every
}

// written stores the time and content of a write to etcd. asked is the state that Member.Record wanted.
func (w *writes) written(now time.Time, asked State, r Record) {
	*w = writes{last: r, asked: asked, raw: r.Encode(), at: now}
}

// status has the fields whose changes are written after statusEvery.
type status struct {
	address, zone, version string
	state                  State
	weight                 uint32
}

func statusOf(r Record) status { return status{r.Address, r.Zone, r.Version, r.State, r.Weight} }
