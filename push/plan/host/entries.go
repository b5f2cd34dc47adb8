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

// joined lists the further ServiceEntries whose ports a host has, the oldest first. They are those of the same
// namespace that define one service together with of (model.Joins), which is the service of the host.
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

// At returns the service that defines a port of the host, the first of several, or nil. UDP ports do not count.
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

// Ports yields the ports of a host with the services that define them, each port number once. UDP ports do not count.
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

// portsOf yields those ports of the host that one of its services defines.
func (h *Host) portsOf(svc *model.Service, yield func(*model.ServicePort, *model.Service) bool) (more bool) {
	for _, p := range svc.Spec.GetPorts() {
		if input.PortOf(svc, p.GetNumber()) == p && h.At(p.GetNumber()) == svc && !yield(p, svc) {
			return false
		}
	}
	return true
}

// AddressesAt calls f with the virtual addresses of the host at a port, once for each service that defines the port.
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
