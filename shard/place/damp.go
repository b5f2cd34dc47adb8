package place

import (
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// Damping of repeated scaling. If a replica leaves soon after it joined, moving its share to it was in vain. After two
// such departures, newcomers of any name start with half of their share. Each further departure halves the start again,
// down to a few light shards. A newcomer's share doubles each minute that it stays. So replicas that come and go
// without end move at most eight shares in total, and then a few shards each time. The first newcomers, and newcomers
// after a quiet time, start with their full share. A new leader starts without this memory.
const (
	flapsAtOnce = 30 * time.Second // departures within this time are one event, such as an autoscaler's step
	growEvery   = time.Minute      // a newcomer's share doubles after each such time
	mostDamped  = 6                // largest number of halvings: a weight of 100 becomes 1
)

// damper counts replicas that left soon after joining.
type damper struct {
	flaps int       // events so far
	last  time.Time // of the last event
}

// went counts a departure, and reports whether the departure was a new event.
func (d *damper) went(now time.Time) bool {
	if now.Sub(d.last) > forgiveAfter {
		d.flaps = 0
	}
	if d.flaps > 0 && now.Sub(d.last) < flapsAtOnce {
		return false
	}
	d.flaps, d.last = d.flaps+1, now
	return true
}

// level returns the number of halvings for a newcomer.
func (d *damper) level(now time.Time) int {
	if now.Sub(d.last) > forgiveAfter {
		return 0
	}
	return min(max(d.flaps-1, 0), mostDamped)
}

// places records whether a replica is in the ring.
func (r *replica) places(now time.Time, in bool) {
	if in && r.out {
		r.joined, r.flapped = now, false
	}
	r.out = !in
}

// flap counts a replica's departure once, if the replica joined the ring recently.
func (a *assigner) flap(now time.Time, r *replica, in bool) {
	if in && !r.flapped && !r.joined.IsZero() && now.Sub(r.joined) < forgiveAfter {
		r.flapped = a.damper.went(now)
	}
}

// unflap undoes flap: the replica was away only briefly.
func (a *assigner) unflap(r *replica) {
	if r.flapped {
		r.flapped, a.damper.flaps = false, max(a.damper.flaps-1, 0)
	}
}

// damped returns the present number of halvings of a replica's share.
func (r *replica) damped(now time.Time) int {
	return max(r.level-int(now.Sub(r.ready)/growEvery), 0)
}

// damp lowers the weights of newcomers. All members together keep at least half of their weight, so that the other
// members receive at most twice their share. A newcomer keeps the weight that the present ring gives it.
func (a *assigner) damp(now time.Time, members []ring.Member, current *ring.Ring) {
	full := uint32(0)
	for _, m := range members {
		full += m.Weight
	}
	for less := 0; less <= mostDamped; less++ {
		weights, sum := make([]uint32, len(members)), uint32(0)
		for i, m := range members {
			weights[i] = m.Weight
			if r := a.replicas[m.Name]; r != nil && r.present && r.record.State == member.Ready {
				given, _ := current.Member(m.Name)
				weights[i] = min(m.Weight, max(1, given.Weight, m.Weight>>max(r.damped(now)-less, 0)))
			}
			sum += weights[i]
		}
		if sum*2 >= full {
			for i := range members {
				members[i].Weight = weights[i]
			}
			return
		}
	}
}
