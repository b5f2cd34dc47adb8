package member

import (
	"bytes"
	"time"
)

// Pace of writes. Mirrors receive each write in their watch, and etcd stores it until compaction. Values that change
// all the time therefore wait; those that others act on at once do not.
const (
	statusEvery = 2 * time.Second  // between two writes, if state, address or weight changed
	loadEvery   = 10 * time.Second // between two writes, if load or revision changed
)

// rampSteps is the number of steps in which a new replica grows to its full weight.
const rampSteps = 4

// Weight returns a replica's weight at a time since it became ready: a fraction of the full weight that grows in steps
// to all of it at the end of ramp.
func Weight(since, ramp time.Duration, full uint32) uint32 {
	if ramp <= 0 || since >= ramp {
		return full
	}
	step := 1 + uint32(max(since, 0)*rampSteps/ramp)
	return max(1, full*min(step, rampSteps)/rampSteps)
}

// writes decides when a record is written. It has no clock.
type writes struct {
	last Record
	raw  []byte // encoded last; nil: nothing was written under the present lease
	at   time.Time
}

// due reports whether a record should be written now.
func (w *writes) due(now time.Time, next Record) bool {
	every := loadEvery
	switch {
	case w.raw == nil, next.State == Leaving && w.last.State != Leaving:
		return true
	case bytes.Equal(next.Encode(), w.raw):
		return false
	case statusOf(next) != statusOf(w.last):
		every = statusEvery
	}
	return now.Sub(w.at) >= every
}

// written records the content in etcd.
func (w *writes) written(now time.Time, r Record) { *w = writes{last: r, raw: r.Encode(), at: now} }

// status has the fields that others act on at once.
type status struct {
	address, zone, version string
	state                  State
	weight                 uint32
}

func statusOf(r Record) status { return status{r.Address, r.Zone, r.Version, r.State, r.Weight} }
