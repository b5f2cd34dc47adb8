package ring

import (
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Bounds of a member's load, as multiples of the member's weighted share of the whole load. After Assign with equal
// weights, a member has at most Bound times its share of the streams, or its share plus the largest shard if that is
// more. With unequal weights, a member may have more if a shard is large beside the shares of small members. Bound
// limits streams, while full limits loads. A load also includes a small weight for every shard (emptyShard), so full is
// lower than Bound.
const (
	Bound = 1.25

	room           = 1.05 // a member has room for a shard if its load stays within this
	full           = 1.20 // a member whose load is above this gives shards away, until its load is within relaxed
	relaxed        = 1.10 // less than full, so that small changes of the load cause no moves
	belowThreshold = 0.60 // a member whose load is below this receives shards up to its share, like a new member
)

// Assign makes the next ring from the previous ring, which may be nil. The version increases by one. A shard moves only
// if its owner is gone or has too much load, or if a member is new, has a greater weight or has too little load. A
// shard that must leave its owner goes to the member with room that ranks first by weighted rendezvous. If no member
// has room, the shard goes to the member whose load with the shard is the least multiple of its share. Assign also
// decides by load which namespaces are split.
//
// Assign ignores members with an invalid name, address or weight (Member). If several members have the same name,
// Assign uses one of them. It also ignores members beyond MaxMembers or half of MaxBytes, and splits beyond MaxSplit or
// MaxBytes. The result is deterministic: it does not depend on the order of members or maps. If nothing changes, or no
// valid member is left, Assign returns previous. The arguments are not changed.
func Assign(previous *Ring, members []Member, load Load) *Ring {
	members = normal(members)
	if len(members) == 0 {
		return previous
	}
	next := &Ring{version: previous.Version() + 1, members: members}
	next.split = splits(previous, members, load)
	t := newAssignment(members, shardLoads(next, load))
	t.misplaced = misplaced(previous, next, load)
	var orphans []int
	for s := range Shards {
		holder, _ := previous.Holder(s)
		m := next.index(holder.Name)
		t.give(s, m)
		if m < 0 {
			orphans = append(orphans, s)
		}
	}
	t.place(orphans)
	t.fillShares(previous)
	t.shedOverload()
	for s, m := range t.owner {
		next.owners[s] = uint16(m + 1)
	}
	if same(previous, next) {
		return previous
	}
	return next
}

// Vacate returns the ring to write after all members of previous have left. It has the next version, and no members,
// owners or split namespaces. previous must not be nil.
func Vacate(previous *Ring) *Ring { return &Ring{version: previous.version + 1} }

// normal returns the valid members, sorted by name and without repeated names. The result has at most MaxMembers
// members and needs at most half of MaxBytes. The argument is unchanged.
func normal(members []Member) []Member {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.valid() })
	slices.SortFunc(members, func(a, b Member) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		if c := strings.Compare(a.Address, b.Address); c != 0 {
			return c
		}
		return int(a.Weight) - int(b.Weight)
	})
	members = slices.CompactFunc(members, func(a, b Member) bool { return a.Name == b.Name })
	members = members[:min(len(members), MaxMembers)]
	for encodedMost(members) > MaxBytes/2 {
		members = members[:len(members)-1]
	}
	return slices.Clip(members)
}

func (r *Ring) index(name string) int {
	i, found := slices.BinarySearchFunc(r.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return -1
	}
	return i
}

// assignment is a ring under construction. It has the present owner of each shard, and the load of each member.
type assignment struct {
	members []Member
	scores  [][Shards]float64 // rendezvous scores, by member and shard
	weight  [Shards]float64   // load of each shard
	// misplaced has a number of streams for each shard. A split or join of a namespace moves these streams from another
	// member to the shard's previous owner.
	misplaced [Shards]float64
	share     []float64   // fair share of each member in the weight of all shards
	load      []float64   // of each member
	owner     [Shards]int // member index of each shard's owner; -1 without an owner
}

func newAssignment(members []Member, weight [Shards]float64) *assignment {
	t := &assignment{members: members, weight: weight, share: make([]float64, len(members)), load: make([]float64, len(members))}
	total, weights := 0., 0.
	for s := range weight {
		total += weight[s]
		t.owner[s] = -1
	}
	for _, m := range members {
		weights += float64(m.Weight)
	}
	t.scores = make([][Shards]float64, len(members))
	for i, m := range members {
		t.share[i] = total * float64(m.Weight) / weights
		name := xxhash.Sum64String(m.Name)
		for s := range Shards {
			t.scores[i][s] = score(name, m.Weight, s)
		}
	}
	return t
}

// score returns the weighted rendezvous score of a member for a shard: -weight/ln(u), with u uniform in (0, 1)
// (Schindelhauer and Schomaker, 2005). The member with the greatest score ranks first. The parameter name is the hash
// of the member's name. Readers of a ring need no scores, because the ring contains the owner of each shard.
func score(name uint64, weight uint32, shard int) float64 {
	h := name + uint64(shard+1)*0x9e3779b97f4a7c15 // splitmix64
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	u := (float64((h^h>>31)>>11) + .5) / (1 << 53)
	return -float64(weight) / math.Log(u)
}

func (t *assignment) give(shard, member int) {
	if from := t.owner[shard]; from >= 0 {
		t.load[from] -= t.weight[shard]
	}
	if t.owner[shard] = member; member >= 0 {
		t.load[member] += t.weight[shard]
	}
}

// fill returns the load of a member as a multiple of its share.
func (t *assignment) fill(member int) float64 { return t.load[member] / t.share[member] }

// with returns the load that a member would have with one more shard, as a multiple of the member's share.
func (t *assignment) with(member, shard int) float64 {
	return (t.load[member] + t.weight[shard]) / t.share[member]
}

// better reports whether member a ranks before member b for a shard. A negative b means that there is no second member,
// and the result is true.
func (t *assignment) better(a, b, shard int) bool {
	if b < 0 || t.scores[a][shard] != t.scores[b][shard] {
		return b < 0 || t.scores[a][shard] > t.scores[b][shard]
	}
	return t.members[a].Name < t.members[b].Name
}

// receiver returns the best-ranked member with room for a shard. If no member has room, the result named fits is false.
// In this case, receiver returns the member whose load with the shard is the least multiple of its share. The shard's
// present owner is excluded. If there is no other member, the result is -1.
func (t *assignment) receiver(shard int) (member int, fits bool) {
	best, least := -1, -1
	for m := range t.members {
		if m == t.owner[shard] {
			continue
		}
		if t.with(m, shard) <= room && t.better(m, best, shard) {
			best = m
		}
		if least < 0 || t.with(m, shard) < t.with(least, shard) {
			least = m
		}
	}
	if best >= 0 {
		return best, true
	}
	return least, false
}

// place assigns shards without an owner to members. Heavy shards come first, so that light shards fill the remaining
// room.
func (t *assignment) place(orphans []int) {
	slices.SortStableFunc(orphans, func(a, b int) int {
		switch {
		case t.weight[a] > t.weight[b]:
			return -1
		case t.weight[a] < t.weight[b]:
			return 1
		}
		return a - b
	})
	for _, s := range orphans {
		m, _ := t.receiver(s)
		t.give(s, m)
	}
}

// fillShares moves shards to members with free load, up to their shares. These are new members, members with a greater
// weight than before, and members whose load is below belowThreshold. The emptiest of them is served first.
func (t *assignment) fillShares(previous *Ring) {
	var receivers []int
	for m, member := range t.members {
		before, was := previous.Member(member.Name)
		if previous != nil && (!was || member.Weight > before.Weight) || t.fill(m) < belowThreshold {
			receivers = append(receivers, m)
		}
	}
	slices.SortStableFunc(receivers, func(a, b int) int {
		switch {
		case t.fill(a) < t.fill(b):
			return -1
		case t.fill(a) > t.fill(b):
			return 1
		}
		return a - b
	})
	for _, m := range receivers {
		for s := t.nextShard(m); s >= 0; s = t.nextShard(m) {
			t.give(s, m)
		}
	}
}

// nextShard returns the next shard that a member should receive. A shard qualifies if it fits into the member's share,
// and if its owner is above its own share. Without such a shard, the result is -1. Shards of owners above full take
// precedence, and next the shards with the greatest misplaced part of their load. Ties are broken by the ratio of the
// member's score to the owner's score. An owner gives shards only while it is above its share, so it ends at most one
// shard below its share.
func (t *assignment) nextShard(m int) int {
	best, bestFull, bestMisplaced, bestMargin := -1, false, 0., 0.
	for s, from := range t.owner {
		if from == m || t.with(m, s) > 1 || t.fill(from) <= 1 {
			continue
		}
		over, misplaced, margin := t.fill(from) > full, t.misplaced[s]/t.weight[s], t.scores[m][s]/t.scores[from][s]
		switch {
		case best >= 0 && over != bestFull:
			if !over {
				continue
			}
		case best >= 0 && misplaced != bestMisplaced:
			if misplaced < bestMisplaced {
				continue
			}
		case best >= 0 && margin <= bestMargin:
			continue
		}
		best, bestFull, bestMisplaced, bestMargin = s, over, misplaced, margin
	}
	return best
}

// shedOverload moves shards away from members above full, the fullest first.
func (t *assignment) shedOverload() {
	stuck := make([]bool, len(t.members)) // no move of the member's shards would help
	for range 4 * Shards {                // each round takes shards from one member; the bound is a precaution
		fullest := -1
		for m := range t.members {
			if !stuck[m] && t.fill(m) > full && (fullest < 0 || t.fill(m) > t.fill(fullest)) {
				fullest = m
			}
		}
		if fullest < 0 {
			return
		}
		moved := false
		for t.fill(fullest) > relaxed && t.shed(fullest) {
			moved = true
		}
		stuck[fullest] = !moved
	}
}

// shed moves one shard away from a member, or returns false if no move would help. The excess is the member's load
// above relaxed. Shards that weigh at most the excess are tried first, from the heaviest. The heavier shards are tried
// next, from the lightest.
func (t *assignment) shed(m int) bool {
	excess := t.load[m] - relaxed*t.share[m]
	var own []int
	for s, owner := range t.owner {
		if owner == m {
			own = append(own, s)
		}
	}
	slices.SortStableFunc(own, func(a, b int) int {
		x, y := t.weight[a], t.weight[b]
		switch small, other := x <= excess, y <= excess; {
		case small != other && small:
			return -1
		case small != other:
			return 1
		case x == y:
			return a - b
		case (x > y) == small: // heavy first within the excess, light first beyond it
			return -1
		}
		return 1
	})
	for _, s := range own {
		if to, fits := t.receiver(s); to >= 0 && (fits || t.with(to, s) < t.fill(m)) {
			t.give(s, to)
			return true
		}
	}
	return false
}
