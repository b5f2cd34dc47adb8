package inbound

import (
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// planListeners plans the listener that receives redirected connections, and the listeners that the Sidecar binds.
func (wl *Workload) planListeners(ports []port, yield func()) {
	n, providers := wl.in.InboundPort(), wl.authorizers()
	v := listener.VirtualInbound{Port: n, Transparent: wl.key.Mode == view.TProxy,
		Closed: wl.key.Closed, Rest: wl.mode(0), Policies: wl.policies, Authentications: wl.authentications, Authorizers: providers}
	var redirected []listener.InboundPort
	var own []listener.Ingress
	for _, p := range ports {
		if p.bind == "" {
			redirected = append(redirected, p.InboundPort)
			continue
		}
		name := xds.ListenerName(p.bind, p.Port)
		own = append(own, listener.Ingress{Common: wl.common(name, p.Port, p.Cluster), Name: name, Bind: p.bind,
			Also: strs.List(p.also...), Inner: p.InboundPort, Closed: wl.key.Closed,
			Policies: wl.policies, Authentications: wl.authentications, Authorizers: providers})
	}
	// Ports of services precede ports of policies, because the listener uses the first of two entries for one port.
	redirected = append(redirected, wl.portsOfPolicies()...)
	v.Ports = inboundPorts.List(redirected...)
	clusters := []string{xds.InboundPassthrough}
	for _, p := range redirected {
		clusters = append(clusters, p.Cluster)
	}
	v.Common = wl.common(xds.VirtualInbound, n, clusters...)
	wl.closeTooLarge(&v, own)
	for _, l := range own {
		if !wl.removesListener(l.Name, l.Inner.Port) {
			wl.plan(l)
			yield()
		}
	}
	if input.Direct(wl.sidecar, wl.key.Mode) || wl.removesListener(xds.VirtualInbound, v.Port) {
		return
	}
	wl.add(wl.in.MakeInPieces(v, yield, model.MeshKey, &wl.found))
}

// common returns the common part of inbound listeners. An inbound listener contains the routes to its clusters, so its
// patches include patches of these routes.
func (wl *Workload) common(name string, port uint32, clusters ...string) listener.Common {
	c := wl.in.Common(wl.key.Caps, wl.key.Listening, wl.patches, name, port, side)
	c.Patches = wl.patches.Matching(func(p model.Patch) bool {
		routes := func(cluster string) bool { return patch.RouteConfigMatches(p, patch.InboundRoutes(cluster)) }
		return patch.ListenerMatches(p, side, name, port) || slices.ContainsFunc(clusters, routes)
	})
	c.Telemetry, c.Extensions = wl.reports.Spec, wl.filters
	c.Proxy, c.HeaderCase = wl.key.Listeners.Or(wl.in.Defaults.Listeners), wl.key.HeaderCase
	return c
}
