package place

import (
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// The hysteresis of scaling. A replica that goes soon after it joined, in good order or not,
// was given its share in vain. Where that happened twice, newcomers of any name begin with half of their share, and with
// half of that after each further time, until it is a few light shards. What one begins with doubles each minute that it
// stays. So replicas that come and go without end move eight shares in all, and then a few shards each time. The first that
// come, and the next after a quiet time, are not held up. A new leader remembers nothing of it.
const (
	flapsAtOnce = 30 * time.Second // replicas that go within it are one event: an autoscaler's step
	growEvery   = time.Minute
	mostDamped  = 6 // times halved: a hundred becomes one
)

// damper counts how often somebody went in vain.
type damper struct {
	flaps int
	last  time.Time
}

// went counts; what it says is whether this was an event of its own.
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

// level is how often the share of who comes now is halved.
func (d *damper) level(now time.Time) int {
	if now.Sub(d.last) > forgiveAfter {
		return 0
	}
	return min(max(d.flaps-1, 0), mostDamped)
}

// places notes whether a replica is in the ring.
func (r *replica) places(now time.Time, in bool) {
	if in && r.out {
		r.joined, r.flapped = now, false
	}
	r.out = !in
}

// flap counts a replica that goes, if it is in the ring and has not been for long; once.
func (a *assigner) flap(now time.Time, r *replica, in bool) {
	if in && !r.flapped && !r.joined.IsZero() && now.Sub(r.joined) < forgiveAfter {
		r.flapped = a.damper.went(now)
	}
}

// unflap takes that back: it was away for a moment only.
func (a *assigner) unflap(r *replica) {
	if r.flapped {
		r.flapped, a.damper.flaps = false, max(a.damper.flaps-1, 0)
	}
}

// damped is how often a replica's share is halved now.
func (r *replica) damped(now time.Time) int {
	return max(r.level-int(now.Sub(r.ready)/growEvery), 0)
}

// damp lowers the weights of newcomers. Members that are damped do not leave more than twice their share to the others: all
// together keep half of their weight. A weight that was given is not taken back.
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
