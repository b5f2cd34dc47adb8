package plan

import (
	"cmp"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// ServicePort is a TCP port of a service that has a router's Pod as an endpoint.
type ServicePort struct {
	Service   string   // "Kind namespace/name"
	Addresses []string // virtual IP addresses of the service; the list is that of the record
	Port      uint32   // number of the port at the service
	Pod       uint32   // number of the port at the Pod
}

// ServicePorts returns the ports of the services in front of a joined router, in the order of the services' age. A port
// whose number at the Pod is unknown is left out. For proxies that are not routers, the result is nil.
func (p *Planner) ServicePorts(h *Handle) (all []ServicePort) {
	scope := h.View().Scope
	if scope.Kind != view.Router {
		return nil
	}
	edge := inbound.NewEdge(p.input, scope.Edge.Value(), input.PatchSet{})
	for _, svc := range edge.Services {
		for _, port := range svc.Spec.GetPorts() {
			at := cmp.Or(edge.Target(svc, port), port.GetTargetNumber())
			if at != 0 && port.GetProtocol() != model.Protocol_PROTOCOL_UDP {
				all = append(all, ServicePort{svc.Key.String(), svc.Spec.GetAddresses(), port.GetNumber(), at})
			}
		}
	}
	return all
}

// ServicePorts returns the result of Planner.ServicePorts for a proxy of this loop. It waits for the loop's goroutine.
// The result is nil before the first plan and after the loop's end.
func (l *Loop) ServicePorts(p *Proxy) (all []ServicePort) {
	l.inspect(func() { all = l.planner.ServicePorts(p.Handle) })
	return all
}
