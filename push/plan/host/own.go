package host

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// own is the endpoints of the proxies' own workload in a variation. The zero own: there are none.
type own struct {
	host string
	layer.Unit
}

// ownHost is the host whose service selects the proxies of a variation first, where the scope sees it as a host of that service; empty: none.
func (v *Variation) ownHost() string {
	svc, ok := v.table.in.Get(v.Inputs.Own.Service)
	if !ok {
		return ""
	}
	for _, name := range input.HostsOf(svc) {
		if h := v.table.Get(name); h != nil && h.Service == svc {
			return name
		}
	}
	return ""
}

// followOwn plans again what depends on a host of the proxies' own workload.
func (v *Variation) followOwn(name string) {
	if v.Inputs.Own != (view.Own{}) && (name == v.own.host || name == v.ownHost()) {
		v.planOwn()
	}
}

// planOwn plans the assignment of the cluster of the proxies' own workload, by whose zones Envoy knows how much of the traffic comes from each. A service that
// the Sidecar of the proxies does not import gives no endpoints: Envoy prefers no zone then.
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
		selection.OnNode = false // whatever the service prefers: all of them send requests
		spec := endpoint.Spec{Cluster: xds.LocalCluster, AllPlain: true, Members: v.table.in.MembersOf(selection, v.Inputs.Own.Has)}
		var found []input.Problem // the same as those of the host's assignments, which the table reports
		if u, ok := v.table.in.Make(v.table.form.Assignment(spec), svc.Key, &found); ok {
			v.own.Unit = u
			v.Layer.Put(u.Res)
		}
		return // each port has the same endpoints
	}
}

// ExplainOwn is the Spec of the endpoints of the proxies' own workload; nil: there are none.
func (v *Variation) ExplainOwn() pool.ResourceSpec { return v.own.Spec }
