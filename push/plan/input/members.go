package input

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Selection identifies the members of one cluster. They are the endpoints of one port of a service that meet all
// conditions of the Selection. A Selection is comparable, and is the key of cached results.
type Selection struct {
	Service *model.Service
	Host    string                     // one of the service's hosts
	Port    uint32                     // the number of a service port
	Rule    *model.DestinationRule     // defines the subset; nil without a subset
	Subset  string                     // the name of the subset; "" without a subset
	Peers   intern.List[*model.Policy] // the result of Input.Peers for the service's namespace
	Local   bool                       // only endpoints of Cluster are selected
	Cluster string                     // cluster in the records' origins; empty: the config cluster. Ignored unless Local is set
	// NotReady is true if endpoints that are not ready are selected too. Envoy counts them and sends them no requests.
	NotReady bool
	// Any is true if endpoints of any health are selected.
	Any bool
	// OnNode is true if only endpoints on Node are selected (NodeLocal of a service).
	OnNode bool
	Node   string // name of a Kubernetes Node; ignored unless OnNode is set
}

// selects reports whether the selection includes an endpoint. It compares the endpoint's health, Node and labels. The
// parameter labels has the labels of the subset.
func (q *Selection) selects(e *model.Endpoint, labels map[string]string) bool {
	switch {
	case q.OnNode && e.GetNode() != q.Node:
		return false
	case q.Any, e.GetHealth() == model.Health_HEALTH_READY, q.Service.Spec.GetPublishNotReady(),
		q.NotReady && e.GetHealth() == model.Health_HEALTH_NOT_READY:
		return model.Selects(labels, e)
	}
	return false
}

// Members returns the endpoints that a selection includes, sorted by address, port and network. The parameter labels
// must have the labels of the selection's subset, because the result is cached by the selection. Only endpoints in the
// service's own namespace are selected. Endpoints have to be ready, unless the selection or the service includes
// others. The endpoint port is the port with the name of the service port. For hosts that are resolved by DNS it is the
// port with the same number (istio: pilot/pkg/model/endpointshards.go, CopyEndpoints).
//
// If several endpoints have the same address, port and network, only the healthiest is included. Such endpoints exist
// because the outdated status of one Pod may still state the address of another Pod. Equal addresses in two networks
// are different endpoints. Endpoints without an address, which gateways reach, are all included.
func (in *Input) Members(q Selection, labels map[string]string) intern.List[model.Member] {
	if found, ok := in.members[q]; ok {
		return found
	}
	base := q.whole()
	candidates := in.candidates(base)
	list := in.members[base]
	if len(labels) > 0 {
		var out []model.Member
		for _, m := range candidates {
			if model.Selects(labels, m.Endpoint) {
				out = append(out, m)
			}
		}
		list = members.List(distinct(out)...)
	}
	in.members[q] = list
	return list
}

// whole returns the selection without its subset.
func (q Selection) whole() Selection {
	q.Rule, q.Subset = nil, ""
	return q
}

// candidates returns the endpoints of a selection without a subset, sorted, and caches its members. So the subsets of a
// host read and sort its endpoints once. The result may have several endpoints of one address, since a subset need not
// select the healthiest. It is read-only.
func (in *Input) candidates(q Selection) []model.Member {
	if found, ok := in.repeated[q]; ok {
		return found
	}
	if found, ok := in.members[q]; ok {
		return found.All()
	}
	port := PortOf(q.Service, q.Port)
	var out []model.Member
	for slice := range in.SlicesOf(q.Service, q.Host) {
		if q.Local && slice.Key.Origin.Cluster() != q.Cluster {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			if !q.selects(e, nil) {
				continue
			}
			if number, ok := slice.Spec.PortAt(e, port, byNumber(q.Service)); ok {
				out = append(out, model.Member{Endpoint: e, Port: number})
			}
		}
	}
	slices.SortStableFunc(out, compareMembers)
	all := distinct(out)
	in.members[q] = members.List(all...)
	if len(all) < len(out) {
		in.repeated[q] = out
	}
	return out
}

// distinct returns the first of each run of members with one address, port and network. It does not change the list.
func distinct(sorted []model.Member) []model.Member {
	same := func(a, b model.Member) bool {
		return a.Endpoint.GetAddress() != "" && a.Endpoint.GetAddress() == b.Endpoint.GetAddress() &&
			a.Port == b.Port && a.Endpoint.GetNetwork() == b.Endpoint.GetNetwork()
	}
	for i := 1; i < len(sorted); i++ {
		if same(sorted[i-1], sorted[i]) {
			return slices.CompactFunc(slices.Clone(sorted), same)
		}
	}
	return sorted
}

// compareMembers orders members by address, port, network and health. Nearly all members differ in their addresses, so
// the other fields are compared only for equal addresses. A host may have 100,000 members.
func compareMembers(a, b model.Member) int {
	if order := strings.Compare(a.Endpoint.GetAddress(), b.Endpoint.GetAddress()); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Endpoint.GetNetwork(), b.Endpoint.GetNetwork()),
		cmp.Compare(healthRank(a.Endpoint.GetHealth()), healthRank(b.Endpoint.GetHealth())))
}

// byNumber reports whether ports of a service and ports of its endpoints are matched by number, and not by name.
func byNumber(service *model.Service) bool {
	return service.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS
}

// Addresses returns the IP addresses of the endpoints of one port of a service, in all clusters and of any health.
// Endpoints with a name instead of an IP address are skipped. The list is sorted as text, without duplicates, and nil
// without addresses. It is cached, so the caller must not change it.
func (in *Input) Addresses(service *model.Service, host string, port uint32) []string {
	at := servedPort{service, host, port}
	found, ok := in.addresses[at]
	if ok {
		return found
	}
	named := PortOf(service, port)
	for slice := range in.SlicesOf(service, host) {
		for _, e := range slice.Spec.GetEndpoints() {
			if _, has := slice.Spec.PortAt(e, named, byNumber(service)); !has {
				continue
			}
			if ip, err := netip.ParseAddr(e.GetAddress()); err == nil {
				found = append(found, ip.String())
			}
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	in.addresses[at] = found
	return found
}

// Published yields the endpoints to which DNS resolves the name of a service, each with its cluster ("" is the config
// cluster). It yields the ready endpoints, or all endpoints if the service has publishNotReadyAddresses, in no order.
func (in *Input) Published(service *model.Service, host string) iter.Seq2[string, *model.Endpoint] {
	return func(yield func(string, *model.Endpoint) bool) {
		q := Selection{Service: service}
		for slice := range in.SlicesOf(service, host) {
			for _, e := range slice.Spec.GetEndpoints() {
				if q.selects(e, nil) && !yield(slice.Key.Origin.Cluster(), e) {
					return
				}
			}
		}
	}
}

// servedPort identifies one port of a host of a service.
type servedPort struct {
	service *model.Service
	host    string
	port    uint32
}

// SlicesOf yields the Endpoints records of a service, in no order. They have the given host and are in the service's
// namespace.
func (in *Input) SlicesOf(service *model.Service, host string) iter.Seq[*model.Endpoints] {
	return func(yield func(*model.Endpoints) bool) {
		for r := range in.ByHost(model.KindEndpoints, host) {
			if slice := r.(*model.Endpoints); slice.Key.Namespace == service.Key.Namespace && !yield(slice) {
				return
			}
		}
	}
}

// healthRank orders health states, the best first.
func healthRank(h model.Health) int {
	switch h {
	case model.Health_HEALTH_READY:
		return 0
	case model.Health_HEALTH_DRAINING:
		return 1
	case model.Health_HEALTH_NOT_READY:
		return 2
	default:
		return 3
	}
}

// MembersOf returns the members of a selection whose endpoints satisfy a predicate, in the order of Members. The
// selection must be without a subset.
func (in *Input) MembersOf(q Selection, holds func(*model.Endpoint) bool) intern.List[model.Member] {
	var out []model.Member
	for _, m := range in.Members(q, nil).All() {
		if holds(m.Endpoint) {
			out = append(out, m)
		}
	}
	return members.List(out...)
}
