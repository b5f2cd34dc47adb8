package meaning

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/push/xds"
)

// place is one locality at one priority.
type place struct {
	locality string // region/zone/sub-zone
	priority uint32
}

// socket identifies an endpoint of an assignment by its place and its address.
type socket struct {
	place
	address string
}

// assignment is the model of an assignment (ClusterLoadAssignment).
type assignment struct {
	endpoints map[socket]*endpointv3.LbEndpoint
	usable    map[string]int                    // number of endpoints that may receive requests, by locality
	weights   map[place]string                  // weights of localities
	sums      map[place]uint64                  // sum of the weights of the endpoints in each place
	rest      *endpointv3.ClusterLoadAssignment // the fields that are not in this model
}

// receives reports whether Envoy sends requests to an endpoint with this health status.
func receives(h corev3.HealthStatus) bool {
	return h == corev3.HealthStatus_UNKNOWN || h == corev3.HealthStatus_HEALTHY || h == corev3.HealthStatus_DEGRADED
}

// usableIn counts the endpoints of an assignment that may receive requests.
func usableIn(m *endpointv3.ClusterLoadAssignment) (n int) {
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if receives(e.GetHealthStatus()) {
				n++
			}
		}
	}
	return n
}

// usable counts the endpoints of a cluster that may receive requests. It reads the assignment of an EDS cluster from
// set.
func usable(set Set, c *clusterv3.Cluster) int {
	if c.GetType() != clusterv3.Cluster_EDS {
		return usableIn(c.GetLoadAssignment())
	}
	name := cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())
	return usableIn(as[*endpointv3.ClusterLoadAssignment](set.Message(xds.Endpoint, name)))
}

// assignmentOf returns the model of an assignment. A nil assignment counts as empty.
func assignmentOf(m *endpointv3.ClusterLoadAssignment) assignment {
	a := assignment{endpoints: map[socket]*endpointv3.LbEndpoint{}, usable: map[string]int{}, weights: map[place]string{},
		sums: map[place]uint64{}}
	a.rest = &endpointv3.ClusterLoadAssignment{}
	if m != nil {
		a.rest = proto.Clone(m).(*endpointv3.ClusterLoadAssignment)
	}
	for _, l := range a.rest.GetEndpoints() {
		at := place{localityText(l.GetLocality()), l.GetPriority()}
		a.weights[at] = strconv.FormatUint(uint64(l.GetLoadBalancingWeight().GetValue()), 10)
		for _, e := range l.GetLbEndpoints() {
			s := socket{at, addressText(e.GetEndpoint().GetAddress())}
			a.sums[at] += uint64(e.GetLoadBalancingWeight().GetValue()) - uint64(a.endpoints[s].GetLoadBalancingWeight().GetValue())
			a.endpoints[s] = e
			if receives(e.GetHealthStatus()) {
				a.usable[at.locality]++
			}
		}
	}
	a.rest.Endpoints = nil
	return a
}

// localityText returns region/zone/sub-zone, without empty names at the end.
func localityText(l *corev3.Locality) string {
	return strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
}

// addressText returns host:port, or unix://PATH for a Unix socket. For other kinds of addresses it returns the message
// as text.
func addressText(a *corev3.Address) string {
	if s := a.GetSocketAddress(); s != nil {
		return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
	}
	if p := a.GetPipe(); p != nil {
		return "unix://" + p.GetPath()
	}
	return brief(a)
}

// assignmentFacts compares two assignments of one name. If old is nil, the assignment is new. If new is nil, the
// assignment is gone.
func assignmentFacts(old, new *endpointv3.ClusterLoadAssignment) []Fact {
	name := cmp.Or(new.GetClusterName(), old.GetClusterName())
	f := Fact{Area: Endpoints, Subject: "cluster " + shortCluster(name)}
	switch {
	case old == nil:
		f.Text = "new: " + plural(usableIn(new), "endpoint")
	case new == nil:
		f.Text = "gone"
	default:
		f.Text = change(assignmentChange(old, new)).String()
	}
	if f.Text == "" {
		return nil
	}
	return []Fact{f}
}

// assignmentChange returns the differences of two assignments.
func assignmentChange(old, new *endpointv3.ClusterLoadAssignment) (c change) {
	a, b := assignmentOf(old), assignmentOf(new)
	c.compare("endpoints", strconv.Itoa(usableIn(old)), strconv.Itoa(usableIn(new)))
	for _, l := range bothKeys(a.usable, b.usable) {
		if len(a.usable)+len(b.usable) > 2 {
			c.compare("in "+orNone(l), strconv.Itoa(a.usable[l]), strconv.Itoa(b.usable[l]))
		}
	}
	c = append(c, endpointChange(a, b)...)
	for _, at := range slices.SortedFunc(maps.Keys(a.weights), func(x, y place) int {
		return cmp.Or(cmp.Compare(x.locality, y.locality), cmp.Compare(x.priority, y.priority))
	}) {
		was, is := a.weights[at], b.weights[at]
		if _, both := b.weights[at]; both && was != is && !followsEndpoints(a, b, at) {
			c.compare("weight of "+orNone(at.locality), was, is)
		}
	}
	c.others(a.rest, b.rest)
	return c
}

// followsEndpoints reports whether the weight of a locality is the sum of the weights of its endpoints, before and
// after.
func followsEndpoints(a, b assignment, at place) bool {
	sum := func(of assignment) string { return strconv.FormatUint(of.sums[at], 10) }
	return sum(a) == a.weights[at] && sum(b) == b.weights[at]
}

// endpointChange lists the endpoints that are new or gone. For each difference in endpoints that stay, it states the
// number of endpoints with this difference.
func endpointChange(a, b assignment) (c change) {
	var gone, added []string
	changed := map[string]int{}
	for _, s := range slices.SortedFunc(maps.Keys(a.endpoints), bySocket) {
		e, is := b.endpoints[s]
		if !is {
			gone = append(gone, s.text())
			continue
		}
		for _, part := range differences(a.endpoints[s], e) {
			changed[part]++
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(b.endpoints), bySocket) {
		if a.endpoints[s] == nil {
			added = append(added, s.text())
		}
	}
	if len(gone) > 0 {
		c = append(c, "gone: "+list(gone))
	}
	if len(added) > 0 {
		c = append(c, "new: "+list(added))
	}
	for _, part := range slices.Sorted(maps.Keys(changed)) {
		c = append(c, fmt.Sprintf("%s of %s", part, plural(changed[part], "endpoint")))
	}
	return c
}

// text returns the address, then the locality and the priority if they are set.
func (s socket) text() string {
	out := s.address
	if s.locality != "" {
		out += " in " + s.locality
	}
	if s.priority > 0 {
		out += fmt.Sprintf(" at priority %d", s.priority)
	}
	return out
}

// bySocket orders endpoints by address, then by place.
func bySocket(x, y socket) int {
	return cmp.Or(cmp.Compare(x.address, y.address), cmp.Compare(x.locality, y.locality), cmp.Compare(x.priority, y.priority))
}

// bothKeys returns the keys that at least one of two maps has, sorted.
func bothKeys[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(make([]string, 0, len(a)+len(b)), maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}
