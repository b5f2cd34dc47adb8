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

// own is the assignment of the proxies' own workload in a variation. Without such an assignment it is zero.
type own struct {
	host string
	layer.Unit
}

// ownHost returns the host of the first service that selects the proxies of a variation, or "" if the scope does not
// see the host as a host of that service.
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

// followOwn plans the assignment of the proxies' own workload again if it depends on the host.
func (v *Variation) followOwn(name string) {
	if v.Inputs.Own != (view.Own{}) && (name == v.own.host || name == v.ownHost()) {
		v.planOwn()
	}
}

// planOwn plans the assignment of the cluster of the proxies' own workload. From its localities Envoy derives how much
// of the traffic comes from each zone. If the Sidecar of the proxies does not import the service, the assignment is
// left out, and Envoy prefers no zone.
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
		selection.OnNode = false // the workload sends requests from all Nodes, whatever the service prefers
		spec := endpoint.Spec{Cluster: xds.LocalCluster, AllPlain: true, Members: v.table.in.MembersOf(selection, v.Inputs.Own.Has)}
		var found []input.Problem // equal to those of the host's assignments, which the table reports
		if u, ok := v.table.in.Make(v.table.form.Assignment(spec), svc.Key, &found); ok {
			v.own.Unit = u
			v.Layer.Put(u.Res)
		}
		return // each port has the same endpoints
	}
}

// ExplainOwn returns the Spec of the assignment of the proxies' own workload, or nil if the variation has no such
// assignment.
func (v *Variation) ExplainOwn() pool.ResourceSpec { return v.own.Spec }
