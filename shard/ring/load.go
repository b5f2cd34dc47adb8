package ring

import "slices"

// Load counts the streams of proxies by namespace. It counts the streams of one replica, or of several replicas
// together (Add). The zero Load is empty.
type Load struct {
	Namespaces map[string]NamespaceLoad
	Rest       int // streams of namespaces that are not listed; they count as evenly spread over the shards
}

// NamespaceLoad counts the streams of one namespace.
type NamespaceLoad struct {
	Streams   int            // all streams of the namespace, those of Workloads included
	Workloads map[string]int // streams by workload; others count as evenly spread if the namespace is split
}

// Streams returns the total number of streams.
func (l Load) Streams() int {
	total := l.Rest
	for _, n := range l.Namespaces {
		total += n.Streams
	}
	return total
}

// Add adds the streams of another Load to l. It changes the maps of l, but not the maps of the argument. It is not safe
// for concurrent use.
func (l *Load) Add(other Load) {
	if l.Namespaces == nil {
		l.Namespaces = map[string]NamespaceLoad{}
	}
	l.Rest += other.Rest
	for name, theirs := range other.Namespaces {
		ours := l.Namespaces[name]
		ours.Streams += theirs.Streams
		if ours.Workloads == nil && len(theirs.Workloads) > 0 {
			ours.Workloads = map[string]int{}
		}
		for workload, streams := range theirs.Workloads {
			ours.Workloads[workload] += streams
		}
		l.Namespaces[name] = ours
	}
}

// Limits of splits. A fair share is the number of streams of all replicas, divided by the number of replicas. The limit
// for joining is lower than the limit for splitting, so that small changes of the load change nothing.
const (
	splitAbove = 1. / 8  // a namespace above this fraction of a fair share is split by workload
	joinBelow  = 1. / 16 // a split namespace within this fraction of a fair share is joined again
	splitLeast = 16      // a namespace with at most this number of streams gains nothing by a split
)

// splits returns the split namespaces of the next ring, sorted. The result has no more namespaces than fit into a ring
// with these members. If members came or left, no namespace with streams is joined, because a join would move further
// streams. The join waits for a later assignment (Resplit).
func splits(previous *Ring, members []Member, load Load) []string {
	calm := slices.EqualFunc(previous.Members(), members, func(a, b Member) bool { return a.Name == b.Name })
	fair := float64(load.Streams()) / float64(len(members))
	var split []string
	for name, n := range load.Namespaces {
		limit := max(fair*splitAbove, splitLeast)
		switch {
		case !previous.Split(name):
		case calm:
			limit = fair * joinBelow
		default:
			limit = 0
		}
		if float64(n.Streams) > limit && len(name) <= MaxName {
			split = append(split, name)
		}
	}
	slices.Sort(split)
	split = split[:min(len(split), MaxSplit)]
	left := MaxBytes - encodedMost(members)
	for i, name := range split {
		if left -= len(name) + fieldMost; left < 0 {
			return split[:i]
		}
	}
	return split
}

// emptyShard is the weight that every shard has in addition to its streams, as a fraction of the mean number of streams
// per shard. Because of this weight, shards without streams are spread over the members too.
const emptyShard = 1. / 32

func empty(load Load) float64 { return max(1./Shards, float64(load.Streams())/Shards*emptyShard) }

// shardLoads returns the weight of each shard, given the split namespaces of a ring.
func shardLoads(r *Ring, load Load) (each [Shards]float64) {
	// Integers are summed first, because their sums do not depend on the order of map iteration.
	var whole [Shards]int
	spread := load.Rest
	for name, n := range load.Namespaces {
		if !r.Split(name) {
			whole[ShardOf(name)] += n.Streams
			continue
		}
		rest := n.Streams
		for workload, streams := range n.Workloads {
			whole[ShardOf(r.Key(name, workload))] += streams
			rest -= streams
		}
		spread += max(rest, 0)
	}
	base := float64(spread)/Shards + empty(load)
	for s, streams := range whole {
		each[s] = base + float64(streams)
	}
	return each
}

// misplaced returns a number of streams for each shard. These streams move from another member to the shard's previous
// owner, because the next ring splits or joins their namespace. Only streams in NamespaceLoad.Workloads count.
func misplaced(previous, next *Ring, load Load) (each [Shards]float64) {
	var whole [Shards]int
	for name, n := range load.Namespaces {
		if previous.Split(name) == next.Split(name) {
			continue
		}
		for workload, streams := range n.Workloads {
			to := ShardOf(next.Key(name, workload))
			before, _ := Owner(previous, name, workload)
			if stays, _ := previous.Holder(to); stays.Name != before.Name {
				whole[to] += streams
			}
		}
	}
	for s, streams := range whole {
		each[s] = float64(streams)
	}
	return each
}

// Streams returns the number of streams that each member would have if every proxy were at its owner. The keys are the
// names of members. Evenly spread streams count in fractions. Members without shards are absent. The map is never nil.
func (r *Ring) Streams(load Load) map[string]float64 {
	each := map[string]float64{}
	weights := shardLoads(r, load)
	for s := range Shards {
		if m, ok := r.Holder(s); ok {
			each[m.Name] += weights[s] - empty(load)
		}
	}
	return each
}

// Imbalance returns the greatest load of a member, as a multiple of the member's weighted fair share. A load includes
// the small weight of every shard (emptyShard). The result is 1 for an even load, and 0 without members. After Assign
// it exceeds Bound only if single shards are large beside the share of a member.
func (r *Ring) Imbalance(load Load) float64 {
	if len(r.Members()) == 0 {
		return 0
	}
	t := newAssignment(r.members, shardLoads(r, load))
	for s, owner := range r.owners {
		t.give(s, int(owner)-1)
	}
	worst := 0.
	for m := range t.members {
		worst = max(worst, t.fill(m))
	}
	return worst
}

// Resplit reports whether Assign with the same members would split or join a namespace at this load. The result is
// false for a ring without members.
func (r *Ring) Resplit(load Load) bool {
	return len(r.Members()) > 0 && !slices.Equal(r.split, splits(r, r.members, load))
}
