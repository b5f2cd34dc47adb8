package host

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// own contains the assignment (ClusterLoadAssignment) of the proxies' own workload in a Variation. The assignment has
// the endpoints of the proxies' service. Envoy needs it for zone-aware load balancing, which prefers endpoints in
// Envoy's own zone. Unit is zero without such an assignment.
type own struct {
	host string
	layer.Unit
}

// ownHost returns the host of the first service that selects the proxies of a variation. It returns "" if the service
// defines no host of the table.
func (v *Variation) ownHost() string {
	svc, ok := v.table.in.Get(v.Inputs.Own.Service)
	if !ok {
		return ""
	}
	for _, name := range model.HostsOf(svc) {
		if h := v.table.Get(name); h != nil && h.Service == svc {
			return name
		}
	}
	return ""
}

// followOwn plans the assignment of the proxies' own workload again if the assignment depends on the host with this
// name.
func (v *Variation) followOwn(name string) {
	if v.Inputs.Own != (view.Own{}) && (name == v.own.host || name == v.ownHost()) {
		v.planOwn()
	}
}

// planOwn plans the assignment of the cluster of the proxies' own workload. From the localities in this assignment,
// Envoy derives the share of the traffic that comes from each zone. If the Sidecar of the proxies does not import the
// service, the assignment is left out, and Envoy prefers no zone.
func (v *Variation) planOwn() {
	if v.Inputs.Own == (view.Own{}) {
		return
	}
	v.Layer.Remove(xds.Endpoint, xds.LocalCluster)
	v.own = own{host: v.ownHost()}
	h := v.table.Get(v.own.host)
	if h == nil {
		return
	}
	for port, svc := range h.Ports() {
		if svc != h.Service {
			continue
		}
		selection := v.table.selection(svc, v.own.host, port.GetNumber(), subset{})
		selection.OnNode = false // the workload sends requests from all Nodes, even if the service is NodeLocal
		spec := endpoint.Spec{Cluster: xds.LocalCluster, AllPlain: true, Members: v.table.in.MembersOf(selection, v.Inputs.Own.Has)}
		var found []input.Problem // dropped: the table reports the same problems for the host's assignments
		if u, ok := v.table.in.MakeInPieces(v.table.form.Assignment(spec), v.table.yield, svc.Key, &found); ok {
			v.own.Unit = u
			v.Layer.Put(u.Res)
		}
		return // all ports have the same endpoints
	}
}

// ExplainOwn returns the Spec (the inputs of the build) of the assignment xds.LocalCluster, which has the endpoints of
// the proxies' own workload. Envoy needs them to prefer its own zone. It returns nil if the variation has no such
// assignment.
func (v *Variation) ExplainOwn() pool.ResourceSpec { return v.own.Spec }
