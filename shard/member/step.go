package member

import (
	"bytes"
	"time"
)

// The pace of writes. Mirrors see the family in their watch, and etcd keeps each write until it compacts: what changes all
// the time waits, what others act on at once does not.
const (
	statusEvery = 2 * time.Second  // between two writes, when state, address or weight changed
	loadEvery   = 10 * time.Second // when load or revision did
)

// rampSteps is in how many parts a replica that became ready takes its share.
const rampSteps = 4

// Weight is a replica's weight a while after it became ready: a part of the full weight, growing in steps to all of it at
// the end of ramp.
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
	raw  []byte // last's; nil: nothing was written under the present lease
	at   time.Time
}

// due says whether a record is to be written now.
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

// written remembers what is in etcd.
func (w *writes) written(now time.Time, r Record) { *w = writes{last: r, raw: r.Encode(), at: now} }

// status is what others act on at once.
type status struct {
	address, zone, version string
	state                  State
	weight                 uint32
}

func statusOf(r Record) status { return status{r.Address, r.Zone, r.Version, r.State, r.Weight} }
