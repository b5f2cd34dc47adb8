package plan

import (
	"cmp"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// selection is what decides the members of a cluster.
type selection struct {
	service *model.Service
	host    string
	port    uint32
	rule    *model.DestinationRule // that defines the subset; nil: all endpoints
	subset  string
	peers   intern.List[*model.Policy] // see peersOf
}

// membersOf lists the endpoints that a cluster selects: of the service's own namespace, ready (or of a service that
// publishes those that are not), at the port of the service port's name, with the subset's labels. Sorted by address and
// port, each once.
func (w *input) membersOf(q selection, labels map[string]string) intern.List[model.Member] {
	if found, ok := w.selected[q]; ok {
		return found
	}
	port := portOf(q.service, q.port)
	var out []model.Member
	for r := range w.ByHost(model.KindEndpoints, q.host) {
		slice := r.(*model.Endpoints)
		if slice.Key.Namespace != q.service.Key.Namespace {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			if e.GetHealth() != model.Health_HEALTH_READY && !q.service.Spec.GetPublishNotReady() || !view.Matches(labels, e.GetLabels()) {
				continue
			}
			if number, ok := portAt(slice.Spec, e, port); ok {
				out = append(out, model.Member{Endpoint: e, Port: number})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b model.Member) int {
		return cmp.Or(cmp.Compare(a.Endpoint.GetAddress(), b.Endpoint.GetAddress()), cmp.Compare(a.Port, b.Port))
	})
	out = slices.CompactFunc(out, func(a, b model.Member) bool {
		return a.Endpoint.GetAddress() == b.Endpoint.GetAddress() && a.Port == b.Port
	})
	list := members.List(out...)
	w.selected[q] = list
	return list
}

// portAt is the number of a service's port at one endpoint; false where the endpoint does not have it.
func portAt(slice *model.EndpointsSpec, e *model.Endpoint, port *model.ServicePort) (uint32, bool) {
	if strings.HasPrefix(e.GetAddress(), "unix://") {
		return 0, true
	}
	if n, ok := e.GetPorts()[port.GetName()]; ok {
		return n, true
	}
	for _, p := range slice.GetPorts() {
		if p.GetName() == port.GetName() {
			return p.GetNumber(), p.GetNumber() != 0
		}
	}
	if len(slice.GetPorts()) > 0 {
		return 0, false
	}
	if port.GetTargetNumber() != 0 {
		return port.GetTargetNumber(), true
	}
	return port.GetNumber(), port.GetNumber() != 0
}

// portOf finds a port of a service by number; nil: it has none (UDP does not count).
func portOf(svc *model.Service, number uint32) *model.ServicePort {
	for _, p := range svc.Spec.GetPorts() {
		if p.GetNumber() == number && p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
			return p
		}
	}
	return nil
}

// planEndpoints plans the assignments of a host's clusters. The fast lane: the service and its rules stay as they were
// last planned.
func (s *scope) planEndpoints(h *host) {
	old := h.endpoints
	h.endpoints = make([]unit, 0, len(old))
	var found []Problem
	for _, c := range h.clusters {
		if !c.assigned() {
			continue
		}
		spec := endpoint.Spec{Cluster: c.res.Name, Members: s.membersOf(c.selection, c.labels)}
		spec.Plain = plainOf(c.selection, spec.Members.All())
		if i := slices.IndexFunc(old, func(u unit) bool { return u.spec == spec }); i >= 0 {
			h.endpoints = append(h.endpoints, old[i])
		} else if u, ok := s.make(spec, h.svc.Key, &found); ok {
			h.endpoints = append(h.endpoints, u)
		}
	}
	s.problems.set("endpoints "+h.name, found)
	s.replace(old, h.endpoints)
}
