package member

import (
	"bytes"
	"time"
)

// Pace of writes. Mirrors receive each write in their watch, and etcd stores it until compaction. Load and revision
// change all the time and therefore wait longest. The states Ready and Leaving are written at once.
const (
	statusEvery = 2 * time.Second  // between two writes, if a field of status changed
	loadEvery   = 10 * time.Second // between two writes, if only load or revision changed
)

// rampSteps is the number of equal steps to the full weight. A ramp has as many parts; the last has the full weight.
const rampSteps = 4

// Weight returns a replica's weight, given the time since it became ready. The weight is a quarter of full at first,
// and grows by a quarter with each quarter of ramp: it is full after three quarters of ramp, and always without a ramp.
// The result is at least 1.
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
	asked State  // state of the target content; last may have another state (Member.write)
	raw   []byte // encoded last; nil: nothing was written under the present lease
	at    time.Time
}

// due reports whether next should be written now.
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

// written records a write to etcd: the state of its target content, and the written content.
func (w *writes) written(now time.Time, asked State, r Record) {
	*w = writes{last: r, asked: asked, raw: r.Encode(), at: now}
}

// status has the fields of a record with early writes (statusEvery).
type status struct {
	address, zone, version string
	state                  State
	weight                 uint32
}

func statusOf(r Record) status { return status{r.Address, r.Zone, r.Version, r.State, r.Weight} }
