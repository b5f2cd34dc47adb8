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
	weight   uint32 // weight of the locality in its priority, set by distribute; 0: the sum of the members' weights
	excluded bool   // distribute sends no traffic to the locality
}

// group groups members by locality and priority. The first priority is 0. Members of a group keep their order. The
// groups are sorted by priority, then by locality.
func (b Balance) group(members []target, pace *pacer) []*group {
	type groupKey struct {
		locality string
		priority uint32
	}
	var groups []*group
	known := map[groupKey]*group{} // each endpoint may state a locality of its own
	labels := b.Localities.Priority()
	for _, m := range members {
		pace.step()
		key := groupKey{locality: m.Endpoint.Locality}
		if len(labels) > 0 {
			key.priority = b.labelPriority(m.Endpoint, labels)
		}
		g := known[key]
		if g == nil {
			g = &group{locality: key.locality, priority: key.priority}
			groups, known[key] = append(groups, g), g
		}
		g.members = append(g.members, m)
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

// compact renumbers the priorities without gaps, as Envoy requires. It sorts the groups by priority, then by locality.
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

// localityPriority returns the priority of a locality: 0 for the proxy's own sub-zone, 1 for its zone, 2 for its region
// and 3 for other regions. If a failover is set for the proxy's region, other regions than the failover's target have
// priority 4.
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

// regionPriority returns the priority of a locality by its region: 0 for the proxy's own region and 1 for other
// regions. If a failover is set for the proxy's region, other regions than the failover's target have priority 2. If
// the proxy's region is unknown, all regions have priority 0
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

// labelPriority returns the priority of an endpoint by labels. The priority is 0 if the endpoint has the wanted values
// of all labels. Otherwise it is the number of labels from the first that differs to the end of the list. If the first
// label is the network, endpoints of other networks come after all endpoints of the proxy's network. The remaining
// labels order the endpoints of both groups. The change notes of Istio 1.31.0 specify this ("failover routing when the
// network is included"). The comment of failoverPriority in istio.io/api differs: there all endpoints of other networks
// have the same priority.
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

// equal reports whether an endpoint has the wanted value of a label. label is an element of failoverPriority:
// "key=value", or "key" for the value that the proxy has.
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

// distribute sets the weights of localities by the first element of distribute whose `from` covers the proxy's
// locality. It excludes localities that the element does not name or gives weight 0.
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

// covers reports whether a pattern covers a locality. pattern is region/zone/sub-zone or the first parts of it. "*"
// covers all remaining parts.
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
