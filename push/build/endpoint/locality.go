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
	labels := b.preferred(pace)
	for _, m := range members {
		pace.step()
		key := groupKey{locality: m.Endpoint.Locality}
		if len(labels) > 0 {
			key.priority = labelPriority(m.Endpoint, labels, pace)
		}
		g := known[key]
		if g == nil {
			g = &group{locality: key.locality, priority: key.priority}
			groups, known[key] = append(groups, g), g
		}
		g.members = append(g.members, m)
	}
	own := model.LocalityParts(b.Locality)
	to, set := b.Localities.Failover(own[0])
	last := func(region string) bool { return set && to != region }
	switch {
	case b.Localities.Zones != nil:
		for _, g := range groups {
			pace.step()
			g.priority = 3*g.priority + regionPriority(own[0], model.LocalityParts(g.locality)[0], last)
		}
	case b.Localities.Setting == nil:
	case len(b.Localities.Setting.GetDistribute()) > 0:
		b.distribute(groups, pace)
	case len(labels) == 0 || len(b.Localities.Setting.GetFailover()) > 0:
		for _, g := range groups {
			pace.step()
			g.priority = 5*g.priority + localityPriority(own, model.LocalityParts(g.locality), last)
		}
	}
	return compact(groups, pace)
}

// compact renumbers the priorities without gaps, as Envoy requires. It returns the groups sorted by priority, then by
// locality. It reuses the memory of groups.
func compact(groups []*group, pace *pacer) []*group {
	ranks := map[uint32]uint32{}
	for _, g := range groups {
		pace.step()
		ranks[g.priority] = 0
	}
	for i, priority := range slices.Sorted(maps.Keys(ranks)) {
		ranks[priority] = uint32(i)
	}
	for _, g := range groups {
		pace.step()
		g.priority = ranks[g.priority]
	}
	return sorted(pace, groups, func(x, y *group) int {
		return cmp.Or(cmp.Compare(x.priority, y.priority), cmp.Compare(x.locality, y.locality))
	})
}

// localityPriority returns the priority of a locality: 0 for the proxy's own sub-zone, 1 for its zone, 2 for its region
// and 3 for other regions. If a failover is set for the proxy's region, other regions than the failover's target are
// last, with priority 4.
func localityPriority(own, other [3]string, last func(region string) bool) uint32 {
	same := 0
	for same < len(own) && own[same] == other[same] {
		same++
	}
	switch {
	case same > 0:
		return uint32(len(own) - same)
	case last(other[0]):
		return 4
	}
	return 3
}

// regionPriority returns the priority of a region: 0 for the proxy's own region and 1 for other regions. If a failover
// is set for the proxy's region, other regions than the failover's target are last, with priority 2. If the proxy's
// region is unknown, all regions have priority 0
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#ZoneAwareLoadBalancerSetting, failover).
func regionPriority(own, other string, last func(region string) bool) uint32 {
	switch {
	case own == "" || own == other:
		return 0
	case last(other):
		return 2
	}
	return 1
}

// labelValue is one label with the value that endpoints must have. An endpoint without the label has the value "".
type labelValue struct{ key, value string }

// preferred resolves failoverPriority: the labels in order, each with the wanted value. An element is "key=value", or
// "key" for the value that the proxy has.
func (b Balance) preferred(pace *pacer) (all []labelValue) {
	own := make(map[string]string, b.Labels.Len())
	for _, l := range b.Labels.All() {
		pace.step()
		key, value, _ := strings.Cut(l, "=")
		own[key] = value
	}
	for _, l := range b.Localities.Priority() {
		pace.step()
		key, value, stated := strings.Cut(l, "=")
		if !stated {
			value = own[key]
		}
		all = append(all, labelValue{key, value})
	}
	return all
}

// labelPriority returns the priority of an endpoint by labels. It is 0 if the endpoint has the wanted value of all
// labels. Otherwise it is the number of labels from the first that differs to the last. If the first label is the
// network, endpoints of other networks come after all endpoints of the proxy's network. The remaining labels order the
// endpoints of both groups. The change notes of Istio 1.31.0 specify this ("failover routing when the network is
// included"). The comment of failoverPriority in istio.io/api differs: there all endpoints of other networks have the
// same priority. Each label counts as one step of pace.
func labelPriority(e *model.Endpoint, labels []labelValue, pace *pacer) uint32 {
	outside := 0
	if labels[0].key == model.NetworkLabel {
		if !labels[0].of(e) {
			outside = len(labels)
		}
		labels = labels[1:]
	}
	for i, label := range labels {
		if pace.step(); !label.of(e) {
			return uint32(outside + len(labels) - i)
		}
	}
	return uint32(outside)
}

// of reports whether an endpoint has the value of the label.
func (l labelValue) of(e *model.Endpoint) bool {
	has, _ := model.LabelOf(e, l.key)
	return has == l.value
}

// distribute sets the weights of localities by the first element of distribute whose `from` covers the proxy's
// locality. It excludes localities that the element does not name or gives weight 0.
func (b Balance) distribute(groups []*group, pace *pacer) {
	for _, d := range b.Localities.Setting.GetDistribute() {
		if pace.step(); !areaOf(d.GetFrom()).covers(b.Locality) {
			continue
		}
		all := sharesOf(d.GetTo())
		shareOf := make([]*share, len(groups))
		for i, g := range groups {
			pace.step()
			if s := all.of(g.locality); s != nil {
				s.total += g.sum()
				shareOf[i] = s
			}
		}
		for i, g := range groups {
			pace.step()
			s := shareOf[i]
			if g.excluded = s == nil || s.percent == 0; s != nil {
				g.weight = uint32(math.Max(1, math.Ceil(float64(s.percent)*g.sum()/s.total)))
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

// share is one locality of an element of distribute. total is the sum of the weights of all members in it.
type share struct {
	name    string
	percent uint32
	total   float64
}

// shares holds the localities of one element of distribute, by the area that each covers.
type shares map[area]*share

// sharesOf returns the shares of an element. Of several names for one area the first is used.
func sharesOf(to map[string]uint32) shares {
	all := make(shares, len(to))
	for name, percent := range to {
		at := areaOf(name)
		if s := all[at]; s == nil || name < s.name {
			all[at] = &share{name: name, percent: percent}
		}
	}
	return all
}

// of returns the share whose name sorts first among those that cover a locality, or nil.
func (s shares) of(locality string) (first *share) {
	at := area{parts: model.LocalityParts(locality), stated: len(area{}.parts)}
	for {
		if found := s[at]; found != nil && (first == nil || found.name < first.name) {
			first = found
		}
		if at.stated == 0 {
			return first
		}
		at.stated--
		at.parts[at.stated] = ""
	}
}

// area is a pattern of localities: the first parts of region/zone/sub-zone. The other parts are empty.
type area struct {
	parts  [3]string
	stated int // number of parts
}

// areaOf parses a pattern: region/zone/sub-zone, or the first parts of it. "*" covers all remaining parts.
func areaOf(pattern string) (a area) {
	for _, part := range strings.SplitN(pattern, "/", len(a.parts)) {
		if part == "*" {
			break
		}
		a.parts[a.stated] = part
		a.stated++
	}
	return a
}

// covers reports whether an area contains a locality.
func (a area) covers(locality string) bool {
	parts := model.LocalityParts(locality)
	return slices.Equal(a.parts[:a.stated], parts[:a.stated])
}
