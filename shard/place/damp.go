package place

import (
	"time"

	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/ring"
)

// The leader damps repeated scaling. A replica that leaves soon after it joined has moved shards (groups of proxies) in
// vain. So the leader counts departures of replicas that joined the ring less than forgiveAfter (10 minutes) ago. After
// two of these departures, each newcomer (replica that becomes ready) starts with half of its share of the shards. Each
// further departure halves the starting share again, up to six times. The share doubles each minute that the newcomer
// stays. If no departure is counted for forgiveAfter, newcomers start with their full share again. A new leader counts
// from zero.
const (
	flapsAtOnce = 30 * time.Second // departures within this time count once, for example one step of an autoscaler
	growEvery   = time.Minute      // interval at which a newcomer's share doubles
	mostDamped  = 6                // largest number of halvings; six halvings turn a weight of 100 into 1
)

// damper counts departures of replicas that joined recently.
type damper struct {
	flaps int       // counted departures so far
	last  time.Time // time of the last counted departure
}

// went counts a departure. It returns false if the departure counts as part of the previous one (flapsAtOnce).
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

// level returns how often the starting share of a newcomer is halved.
func (d *damper) level(now time.Time) int {
	if now.Sub(d.last) > forgiveAfter {
		return 0
	}
	return min(max(d.flaps-1, 0), mostDamped)
}

// places records whether the replica is in the ring (parameter inRing), and when it joined the ring.
func (r *replica) places(now time.Time, inRing bool) {
	if inRing && r.out {
		r.joined, r.flapped = now, false
	}
	r.out = !inRing
}

// flap counts the departure of a replica, if the replica is in the ring and joined less than forgiveAfter ago. Each
// departure counts once.
func (a *assigner) flap(now time.Time, r *replica, in bool) {
	if in && !r.flapped && !r.joined.IsZero() && now.Sub(r.joined) < forgiveAfter {
		r.flapped = a.damper.went(now)
	}
}

// unflap undoes flap for a replica that came back after a brief absence.
func (a *assigner) unflap(r *replica) {
	if r.flapped {
		r.flapped, a.damper.flaps = false, max(a.damper.flaps-1, 0)
	}
}

// damped returns the present number of halvings of a replica's share.
func (r *replica) damped(now time.Time) int {
	return max(r.level-int(now.Sub(r.ready)/growEvery), 0)
}

// damp lowers the weights of newcomers in members. The sum of all weights stays at least half of the original sum. So
// the other members receive at most twice their share. A newcomer's weight is not lowered below its weight in the
// present ring, current.
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
