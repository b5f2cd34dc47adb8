package endpoint

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// group holds the endpoints of one locality and priority.
type group struct {
	locality string
	priority uint32
	members  []target
	weight   uint32 // share of the locality within its priority, if the setting distributes; 0: the sum of the members
	excluded bool   // distribute sends no traffic to the locality
}

// group groups members by locality and priority; the first priority is 0. The members must be sorted by locality, and
// the groups of a priority are sorted by locality too.
func (b Balance) group(members []target) []*group {
	var groups []*group
	labels := b.Localities.Priority()
	for _, m := range members {
		g := &group{locality: m.Endpoint.Locality}
		if len(labels) > 0 {
			g.priority = b.labelPriority(m.Endpoint, labels)
		}
		i := slices.IndexFunc(groups, func(o *group) bool { return o.locality == g.locality && o.priority == g.priority })
		if i < 0 {
			groups = append(groups, g)
			i = len(groups) - 1
		}
		groups[i].members = append(groups[i].members, m)
	}
	switch {
	case b.Localities.Zones != nil:
		for _, g := range groups {
			g.priority = 3*g.priority + b.regionPriority(g.locality)
		}
	case b.Localities.Setting == nil:
	case len(b.Localities.Setting.GetDistribute()) > 0:
		b.distribute(groups)
	case len(labels) == 0 || len(b.Localities.Setting.GetFailover()) > 0:
		for _, g := range groups {
			g.priority = 5*g.priority + b.localityPriority(g.locality)
		}
	}
	compact(groups)
	return groups
}

// compact renumbers the priorities without gaps, as Envoy requires, and sorts the groups by priority.
func compact(groups []*group) {
	var used []uint32
	for _, g := range groups {
		used = append(used, g.priority)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	for _, g := range groups {
		i, _ := slices.BinarySearch(used, g.priority)
		g.priority = uint32(i)
	}
	slices.SortStableFunc(groups, func(x, y *group) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.locality, y.locality))
	})
}

// localityPriority returns 0 for the proxy's own sub-zone, 1 for its zone, 2 for its region and 3 for others. If a
// failover is set for the proxy's region, regions except its target have 4.
func (b Balance) localityPriority(locality string) uint32 {
	own, other := model.LocalityParts(b.Locality), model.LocalityParts(locality)
	same := 0
	for same < len(own) && own[same] == other[same] {
		same++
	}
	if same > 0 {
		return uint32(len(own) - same)
	}
	if to, set := b.Localities.Failover(own[0]); set && to != other[0] {
		return 4
	}
	return 3
}

// regionPriority returns the priority of a locality among regions. It is 0 for the proxy's own region, 1 for the
// failover target of that region (any region without a failover setting), and 2 for others. If the proxy's region is
// unknown, it is 0 for all regions
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#ZoneAwareLoadBalancerSetting, failover).
func (b Balance) regionPriority(locality string) uint32 {
	own, other := model.LocalityParts(b.Locality)[0], model.LocalityParts(locality)[0]
	to, set := b.Localities.Failover(own)
	switch {
	case own == "" || own == other:
		return 0
	case set && to != other:
		return 2
	}
	return 1
}

// labelPriority returns the number of labels from the first that differs to the last, so 0 if all are equal. The
// network, as the first label, is a preference: endpoints of other networks come after all endpoints of the own
// network, and the other labels order them in the same way. The change notes of Istio 1.31.0 specify this ("failover
// routing when the network is included"); the comment of failoverPriority in istio.io/api treats all endpoints of other
// networks alike.
func (b Balance) labelPriority(e *model.Endpoint, labels []string) uint32 {
	outside := 0
	if key, _, _ := strings.Cut(labels[0], "="); key == model.NetworkLabel {
		if !b.equal(e, labels[0]) {
			outside = len(labels)
		}
		labels = labels[1:]
	}
	for i, label := range labels {
		if !b.equal(e, label) {
			return uint32(outside + len(labels) - i)
		}
	}
	return uint32(outside)
}

// equal reports whether an endpoint has the value of a label of failoverPriority: the stated one ("key=value"), or the
// proxy's ("key").
func (b Balance) equal(e *model.Endpoint, label string) bool {
	key, want, stated := strings.Cut(label, "=")
	if !stated {
		want = b.label(key)
	}
	has, _ := model.LabelOf(e, key)
	return has == want
}

// label returns the value of a label of the proxy, or "".
func (b Balance) label(key string) string {
	for _, l := range b.Labels.All() {
		if k, v, _ := strings.Cut(l, "="); k == key {
			return v
		}
	}
	return ""
}

// distribute sets the weights of localities by the first entry of the setting for the proxy's locality. Localities that
// the entry does not name are excluded.
func (b Balance) distribute(groups []*group) {
	for _, d := range b.Localities.Setting.GetDistribute() {
		if !covers(d.GetFrom(), b.Locality) {
			continue
		}
		for _, g := range groups {
			g.excluded = true
		}
		matched := map[*group]bool{}
		for _, to := range slices.Sorted(maps.Keys(d.GetTo())) {
			var named []*group
			total := 0.0
			for _, g := range groups {
				if !matched[g] && covers(to, g.locality) {
					matched[g] = true
					named = append(named, g)
					total += g.sum()
				}
			}
			for _, g := range named {
				share := float64(d.GetTo()[to]) * g.sum() / total
				g.weight, g.excluded = uint32(math.Max(1, math.Ceil(share))), d.GetTo()[to] == 0
			}
		}
		return
	}
}

// sum returns the sum of the members' weights.
func (g *group) sum() (total float64) {
	for _, m := range g.members {
		total += float64(m.weight)
	}
	return total
}

// covers reports whether a locality of a setting covers another locality; "*" covers all parts that follow.
func covers(pattern, locality string) bool {
	parts := model.LocalityParts(locality)
	for i, p := range strings.SplitN(pattern, "/", 3) {
		if p == "*" {
			return true
		}
		if p != parts[i] {
			return false
		}
	}
	return true
}
