package view

import (
	"cmp"
	"slices"
	"strings"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Served is a port of a ServiceEntry that a workload serves, because an endpoint of the ServiceEntry has the workload's
// address. UDP ports are left out. Served is comparable.
type Served struct {
	Service model.Key // the ServiceEntry
	Port    uint32    // the port of the ServiceEntry
	Target  uint32    // the port at which the workload listens; never 0
}

var serving intern.Table[Served]

// servedBy returns the ports that ServiceEntries of the node's own namespace define at the node's addresses, sorted.
// ServiceEntries of other namespaces do not count, as with Kubernetes Services (istio:
// pilot/pkg/serviceregistry/serviceentry/controller.go, GetProxyServiceTargets).
func (x *Index) servedBy(s *mirror.Snapshot, n Node) (all []Served) {
	for _, address := range n.Addresses {
		all = append(all, x.statedIn(s, n.Namespace)[address]...)
	}
	slices.SortFunc(all, func(a, b Served) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Target, b.Target))
	})
	return slices.Compact(all)
}

// statedIn maps the addresses of endpoints in ServiceEntries of a namespace to the ports at these addresses. UDP ports
// are left out. The result may be nil. It is cached while the snapshot stays the same.
func (x *Index) statedIn(s *mirror.Snapshot, namespace string) map[string][]Served {
	x.at(s)
	stated, known := x.stated[namespace]
	if known {
		return stated
	}
	for r := range s.WithPrefix(model.KindEndpoints, namespace, model.ServiceEntryPrefix) {
		slice := r.(*model.Endpoints)
		name, _, _ := strings.Cut(strings.TrimPrefix(slice.Key.Name, model.ServiceEntryPrefix), ":")
		entry, ok := s.Get(model.Key{Kind: model.KindServiceEntry, Namespace: namespace, Name: name, Origin: slice.Key.Origin})
		if !ok {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			for _, p := range entry.(*model.Service).Spec.GetPorts() {
				if target, _ := slice.Spec.PortAt(e, p, true); target != 0 && p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
					if stated == nil {
						stated = map[string][]Served{}
					}
					stated[e.GetAddress()] = append(stated[e.GetAddress()], Served{entry.Meta().Key, p.GetNumber(), target})
				}
			}
		}
	}
	if x.stated == nil {
		x.stated = map[string]map[string][]Served{}
	}
	x.stated[namespace] = stated
	return stated
}

// withServed returns the given services and the ServiceEntries of the served ports, each once, the oldest first.
func withServed(s *mirror.Snapshot, services intern.List[model.Key], served []Served) intern.List[model.Key] {
	var all []*model.Service
	add := func(key model.Key) {
		if r, ok := s.Get(key); ok && !slices.Contains(all, r.(*model.Service)) {
			all = append(all, r.(*model.Service))
		}
	}
	for _, key := range services.All() {
		add(key)
	}
	for _, of := range served {
		add(of.Service)
	}
	slices.SortFunc(all, func(a, b *model.Service) int { return a.Older(&b.Head) })
	out := make([]model.Key, len(all))
	for i, svc := range all {
		out[i] = svc.Key
	}
	return keys.List(out...)
}
