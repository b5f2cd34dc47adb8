package input

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Selection decides the members of a cluster, and which of them are connected to without mTLS. Comparable.
type Selection struct {
	Service *model.Service
	Host    string
	Port    uint32
	Rule    *model.DestinationRule // defines the subset; nil selects all endpoints
	Subset  string
	Peers   intern.List[*model.Policy] // see Input.Peers
	Local   bool                       // only endpoints of Cluster are selected
	Cluster string                     // as in origins: empty for the config cluster
	// NotReady selects endpoints that are not ready, too. Envoy counts them and sends no requests to them.
	NotReady bool
	// Any selects endpoints of any health.
	Any bool
	// OnNode selects only the endpoints on Node (NodeLocal of a service).
	OnNode bool
	Node   string
}

// selects reports whether the selection includes an endpoint, by its health, its Node and the labels of the subset.
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

// Members lists the endpoints that a cluster selects, sorted by address, port and network. labels are those of the
// selection's subset. The endpoints are those of the service's own namespace that are ready (unless the selection or
// the service includes others) and have the labels. Their port has the name of the service port or, for hosts that are
// resolved by DNS, its number (istio: pilot/pkg/model/endpointshards.go, CopyEndpoints).
//
// Of several endpoints with the same address, port and network the healthiest is used: a Pod may have an address that
// the outdated status of another Pod still states. Equal addresses in two networks are different endpoints. Endpoints
// without an address, which gateways reach, are all included. The result is cached.
func (in *Input) Members(q Selection, labels map[string]string) intern.List[model.Member] {
	if found, ok := in.members[q]; ok {
		return found
	}
	port := PortOf(q.Service, q.Port)
	var out []model.Member
	for slice := range in.SlicesOf(q.Service, q.Host) {
		if q.Local && slice.Key.Origin.Cluster() != q.Cluster {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			if !q.selects(e, labels) {
				continue
			}
			if number, ok := slice.Spec.PortAt(e, port, byNumber(q.Service)); ok {
				out = append(out, model.Member{Endpoint: e, Port: number})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b model.Member) int {
		return cmp.Or(cmp.Compare(a.Endpoint.GetAddress(), b.Endpoint.GetAddress()), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Endpoint.GetNetwork(), b.Endpoint.GetNetwork()),
			cmp.Compare(healthRank(a.Endpoint.GetHealth()), healthRank(b.Endpoint.GetHealth())))
	})
	out = slices.CompactFunc(out, func(a, b model.Member) bool {
		return a.Endpoint.GetAddress() != "" && a.Endpoint.GetAddress() == b.Endpoint.GetAddress() &&
			a.Port == b.Port && a.Endpoint.GetNetwork() == b.Endpoint.GetNetwork()
	})
	list := members.List(out...)
	in.members[q] = list
	return list
}

// byNumber reports whether a service's ports are matched with those of its endpoints by number. Otherwise they are
// matched by name.
func byNumber(service *model.Service) bool {
	return service.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS
}

// Addresses lists the IP addresses of the endpoints of one port of a service in all clusters, whatever their health.
// The list is sorted, has no duplicates, and is cached.
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

// Published yields the endpoints that the name of a service resolves to, at any port, with their clusters: the ready
// ones, or all if the service publishes those that are not ready. They are in no order.
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

// SlicesOf yields the Endpoints records of a service: those of its host in its own namespace.
func (in *Input) SlicesOf(service *model.Service, host string) iter.Seq[*model.Endpoints] {
	return func(yield func(*model.Endpoints) bool) {
		for r := range in.ByHost(model.KindEndpoints, host) {
			if slice := r.(*model.Endpoints); slice.Key.Namespace == service.Key.Namespace && !yield(slice) {
				return
			}
		}
	}
}

// healthRank orders health states, the best first. It is called for each comparison of endpoints, so it is a switch.
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

// MembersOf lists the members of a selection without subset whose endpoints satisfy a predicate.
func (in *Input) MembersOf(q Selection, holds func(*model.Endpoint) bool) intern.List[model.Member] {
	var out []model.Member
	for _, m := range in.Members(q, nil).All() {
		if holds(m.Endpoint) {
			out = append(out, m)
		}
	}
	return members.List(out...)
}
