package input

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Selection is what decides the members of a cluster, and which of them are spoken to without mTLS. Comparable.
type Selection struct {
	Service *model.Service
	Host    string
	Port    uint32
	Rule    *model.DestinationRule // that defines the subset; nil: all endpoints
	Subset  string
	Peers   intern.List[*model.Policy] // see Input.Peers
	Local   bool                       // those of one cluster alone
	Cluster string                     // that one, as origins have it
	// NotReady: those that are not ready, too. Envoy counts them, and sends nothing there.
	NotReady bool
	// Any: whatever their health.
	Any bool
	// OnNode: those of one node alone (NodeLocal of a service), Node.
	OnNode bool
	Node   string
}

// selects says whether an endpoint is among those that the selection is of: by its health, its node and the labels of the subset.
func (q *Selection) selects(e *model.Endpoint, labels map[string]string) bool {
	switch {
	case q.OnNode && e.GetNode() != q.Node:
		return false
	case q.Any, e.GetHealth() == model.Health_HEALTH_READY, q.Service.Spec.GetPublishNotReady(), q.NotReady && e.GetHealth() == model.Health_HEALTH_NOT_READY:
		return model.Selects(labels, e)
	}
	return false
}

// Members lists the endpoints that a cluster selects: of the service's own namespace, ready (unless the selection, or the service, is of those
// that are not, too), with the subset's labels, at the port of the service port's name; of hosts that are resolved by DNS at that of its number (istio:
// pilot/pkg/model/endpointshards.go, CopyEndpoints). Sorted by address,
// port and network, each once: two networks may have the same addresses, and those without an address are all reached by gateways. Of two endpoints at one place the healthier one counts: a Pod may
// have the address that the status of another one still says. The labels are those of the selection's subset.
func (in *Input) Members(q Selection, labels map[string]string) intern.List[model.Member] {
	if found, ok := in.members[q]; ok {
		return found
	}
	port := PortOf(q.Service, q.Port)
	var out []model.Member
	for slice := range in.slicesOf(q.Service, q.Host) {
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
			cmp.Compare(a.Endpoint.GetNetwork(), b.Endpoint.GetNetwork()), cmp.Compare(illness(a.Endpoint.GetHealth()), illness(b.Endpoint.GetHealth())))
	})
	out = slices.CompactFunc(out, func(a, b model.Member) bool {
		return a.Endpoint.GetAddress() != "" && a.Endpoint.GetAddress() == b.Endpoint.GetAddress() && a.Port == b.Port && a.Endpoint.GetNetwork() == b.Endpoint.GetNetwork()
	})
	list := members.List(out...)
	in.members[q] = list
	return list
}

// byNumber says whether the ports of a service's endpoints are found by the number of the service's port, not by its name.
func byNumber(service *model.Service) bool {
	return service.Spec.GetResolution() != model.Resolution_RESOLUTION_EDS
}

// Addresses lists the IPs of the endpoints of one port of a service, whatever their health and in all clusters. Sorted,
// each once.
func (in *Input) Addresses(service *model.Service, host string, port uint32) []string {
	at := servedPort{service, host, port}
	found, ok := in.addresses[at]
	if ok {
		return found
	}
	named := PortOf(service, port)
	for slice := range in.slicesOf(service, host) {
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

// Published yields the endpoints of a service that its name stands for, whatever their ports: the ready ones, or all of
// a service that publishes those that are not ready; each with the cluster that it is from. In no order.
func (in *Input) Published(service *model.Service, host string) iter.Seq2[string, *model.Endpoint] {
	return func(yield func(string, *model.Endpoint) bool) {
		q := Selection{Service: service}
		for slice := range in.slicesOf(service, host) {
			for _, e := range slice.Spec.GetEndpoints() {
				if q.selects(e, nil) && !yield(slice.Key.Origin.Cluster(), e) {
					return
				}
			}
		}
	}
}

// servedPort is one port of a host of a service.
type servedPort struct {
	service *model.Service
	host    string
	port    uint32
}

// slicesOf yields the Endpoints records of a service: those of its host in its own namespace.
func (in *Input) slicesOf(service *model.Service, host string) iter.Seq[*model.Endpoints] {
	return func(yield func(*model.Endpoints) bool) {
		for r := range in.ByHost(model.KindEndpoints, host) {
			if slice := r.(*model.Endpoints); slice.Key.Namespace == service.Key.Namespace && !yield(slice) {
				return
			}
		}
	}
}

// illness orders health: what is best comes first. It is asked for each comparison of endpoints.
func illness(h model.Health) int {
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

// MembersOf are those members of a selection of all endpoints for which something holds.
func (in *Input) MembersOf(q Selection, holds func(*model.Endpoint) bool) intern.List[model.Member] {
	var out []model.Member
	for _, m := range in.Members(q, nil).All() {
		if holds(m.Endpoint) {
			out = append(out, m)
		}
	}
	return members.List(out...)
}
