package host

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// ownHost is the host whose service selects the proxies of a variation first, where the scope sees it as a host of that service; empty: none.
func (v *Variation) ownHost() string {
	own, ok := v.table.in.Get(v.Inputs.Own.Service)
	if !ok {
		return ""
	}
	for _, name := range input.HostsOf(own) {
		if h := v.table.Get(name); h != nil && h.Service == own {
			return name
		}
	}
	return ""
}

// followOwn plans again what depends on a host of the proxies' own workload.
func (v *Variation) followOwn(name string) {
	if v.Inputs.Own != (view.Own{}) && (name == v.own || name == v.ownHost()) {
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
	if v.own = v.ownHost(); v.own == "" {
		return
	}
	h := v.table.Get(v.own)
	for port, svc := range h.Ports() {
		if svc != h.Service {
			continue
		}
		selection := v.table.selection(svc, v.own, port.GetNumber(), subset{})
		var found []input.Problem // none: no EnvoyFilter is for assignments
		spec := endpoint.Spec{Cluster: xds.LocalCluster, Bare: true, Members: v.table.in.MembersOf(selection, v.Inputs.Own.Has)}
		if u, ok := v.table.in.Make(v.table.form.Assignment(spec), svc.Key, &found); ok {
			v.Layer.Put(u.Res)
		}
		return // each port has the same endpoints
	}
}
