package plan

import (
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/xds"
)

// TrafficSource names the objects that define a part of a listener's traffic. Planner.Explain returns such values.
type TrafficSource = front.TrafficSource

// Serving returns the virtual hosts of one host that a joined proxy has, in all of its route configurations. Without
// such virtual hosts, the result is empty. The cost does not grow with the number of hosts.
func (p *Planner) Serving(h *Handle, name string) []host.Routed {
	pl := h.planned.Load()
	return pl.scope.front.Serving(func(of string) bool { return of == name }, pl.variation())
}

// Explain returns the Specs from which a resource of a joined proxy is built, and values that name the objects behind
// the resource. The first element is the resource's own Spec. Further elements may follow:
//
//   - For a route configuration, the Specs of its virtual hosts, in their order. At a gateway these Specs are
//     gateway.ServedHosts.
//   - For an outbound listener of a sidecar, a TrafficSource for each host with traffic that is not plain HTTP.
//   - For a listener of a gateway, a gateway.Chain for each filter chain.
//   - For inbound listeners and clusters, TrafficSources of the services and the Sidecar.
//   - For inbound listeners whose mTLS modes PeerAuthentications set, a front.ModeSource as the last element.
//
// The Specs are shared and must not be changed. The result is nil if the proxy has no such resource. Explain panics for
// xds.Unknown.
func (p *Planner) Explain(h *Handle, t xds.Type, name string) []any {
	pl := h.planned.Load()
	of := xds.Ref{Type: t, Name: name}
	if h.Set().Types[t].Get(name) == nil {
		return nil
	}
	if pl.identity != nil && t == xds.Extension {
		if spec := pl.identity.ExplainModule(pl.modules, name); spec != nil { // overrides the workload's
			return []any{spec}
		}
	}
	if specs := pl.workload.Explain(of); specs != nil {
		return specs
	}
	s := pl.scope
	var v *host.Variation
	if pl.variant != nil {
		v = pl.variant.Variation
	}
	switch t {
	case xds.Cluster, xds.Endpoint:
		if v != nil && of == (xds.Ref{Type: xds.Endpoint, Name: xds.LocalCluster}) && v.ExplainOwn() != nil {
			return []any{v.ExplainOwn()}
		}
		explain := s.hosts.Explain
		if v != nil {
			explain = v.Explain
		}
		if spec := explain(of); spec != nil && s.layer.Spec(of) == nil {
			return []any{spec}
		}
	case xds.Secret:
		if pl.identity == nil {
			return nil
		}
		if spec := pl.identity.Explain(name); spec != nil {
			return []any{spec}
		}
	case xds.Listener, xds.Route:
		if specs := s.front.Explain(of, v); specs != nil && s.layer.Spec(of) == nil {
			return specs
		}
	case xds.Extension, xds.NumTypes: // planned by the workload or the scope's layer
	}
	if spec := s.layer.Spec(of); spec != nil {
		return []any{spec}
	}
	return nil
}
