package ring

import "slices"

// Load is the load of all replicas together, whichever replica serves each stream.
type Load struct {
	Namespaces map[string]NamespaceLoad
	Rest       int // streams of namespaces that are not named, counted as spread evenly
}

// NamespaceLoad is the load of one namespace.
type NamespaceLoad struct {
	Streams   int
	Workloads map[string]int // streams by reported workload; the others count as spread evenly
}

// Streams returns the total number of streams.
func (l Load) Streams() int {
	total := l.Rest
	for _, n := range l.Namespaces {
		total += n.Streams
	}
	return total
}

// Add adds another replica's report. It modifies l's maps; the zero Load is ready for use.
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

// A namespace is split by workload above an eighth of a replica's fair share. It is joined again below half of that, so
// that a load near the limit changes nothing. Below splitLeast streams a split gains nothing.
const (
	splitAbove = 1. / 8
	joinBelow  = 1. / 16
	splitLeast = 16
)

// splits returns the namespaces to split, sorted. If members came or left, no namespace is joined: joins would move
// further streams, and wait for the next assignment (Resplit).
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
		if float64(n.Streams) > limit {
			split = append(split, name)
		}
	}
	slices.Sort(split)
	return split[:min(len(split), MaxSplit)]
}

// emptyShard is the weight of a shard without streams, as a fraction of the mean of all shards. Empty shards are spread
// too, because proxies will come to them.
const emptyShard = 1. / 32

func empty(load Load) float64 { return max(1./Shards, float64(load.Streams())/Shards*emptyShard) }

// shardLoads returns the weight of each shard under a ring's splits.
func shardLoads(r *Ring, load Load) (each [Shards]float64) {
	// Whole numbers are summed first: their sums do not depend on the order of the maps.
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

// misplaced returns, for each shard that stays with its owner, the number of streams that come from another member
// because next splits or joins their namespace.
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

// Streams returns the number of streams of each member, by name, if every proxy were at its owner.
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

// Imbalance returns the greatest load of a member relative to its weighted fair share; 1 is even. Assign bounds it.
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

// Resplit reports whether Assign would split or join a namespace at this load.
func (r *Ring) Resplit(load Load) bool {
	return len(r.Members()) > 0 && !slices.Equal(r.split, splits(r, r.members, load))
}
