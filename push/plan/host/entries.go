package host

import (
	"iter"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// services interns lists of the ServiceEntries of one host.
var services intern.Table[*model.Service]

// joined returns the ServiceEntries that add their ports to the service of a host (model.Joins), the oldest first. The
// list is empty unless the service itself is a ServiceEntry.
func joined(in *input.Input, host string, of *model.Service) (list intern.List[*model.Service]) {
	if of == nil || of.Key.Kind != model.KindServiceEntry {
		return list
	}
	var all []*model.Service
	for r := range in.ByHost(model.KindServiceEntry, host) {
		if svc := r.(*model.Service); svc != of && model.Joins(of, svc) {
			all = append(all, svc)
		}
	}
	slices.SortFunc(all, func(a, b *model.Service) int { return a.Older(&b.Head) })
	return services.List(all...)
}

// At returns the service that defines a port of the host, or nil. If several services define the port, At prefers
// h.Service, and then the oldest ServiceEntry in Joined. UDP ports do not count. h must not be nil.
func (h *Host) At(port uint32) *model.Service {
	if h.Service != nil && input.PortOf(h.Service, port) != nil {
		return h.Service
	}
	for _, svc := range h.joined.All() {
		if input.PortOf(svc, port) != nil {
			return svc
		}
	}
	return nil
}

// Ports yields each port of a host with the service that defines it (At). UDP ports do not count. A host without a
// service has no ports.
func (h *Host) Ports() iter.Seq2[*model.ServicePort, *model.Service] {
	return func(yield func(*model.ServicePort, *model.Service) bool) {
		if h.Service == nil || !h.portsOf(h.Service, yield) {
			return
		}
		for _, svc := range h.joined.All() {
			if !h.portsOf(svc, yield) {
				return
			}
		}
	}
}

// portsOf yields the ports of the host for which At returns svc. It returns false if yield returns false.
func (h *Host) portsOf(svc *model.Service, yield func(*model.ServicePort, *model.Service) bool) (more bool) {
	for _, p := range svc.Spec.GetPorts() {
		if input.PortOf(svc, p.GetNumber()) == p && h.At(p.GetNumber()) == svc && !yield(p, svc) {
			return false
		}
	}
	return true
}

// AddressesAt calls f once for each service of the host that has the port, with the virtual addresses of the service
// (Table.Addresses), which f must not change. UDP ports do not count.
func (t *Table) AddressesAt(h *Host, port uint32, f func(addresses []string)) {
	if h.Service != nil && input.PortOf(h.Service, port) != nil {
		f(t.Addresses(h.Service, h.Name))
	}
	for _, svc := range h.joined.All() {
		if input.PortOf(svc, port) != nil {
			f(t.Addresses(svc, h.Name))
		}
	}
}
