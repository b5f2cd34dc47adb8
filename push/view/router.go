package view

import (
	"fmt"
	"slices"
	"unique"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// RouterSettings are settings of a control plane for all of its routers, by istiod's variables. The zero value has
// their defaults.
type RouterSettings struct {
	OwnNamespace bool // a router has the Gateways of its own namespace alone (PILOT_SCOPE_GATEWAY_TO_NAMESPACE)
	Routed       bool // a router has the clusters alone that its routes may send to (PILOT_FILTER_GATEWAY_CLUSTER_CONFIG)
	QUIC         bool // HTTP/3 is served beside HTTPS (PILOT_ENABLE_QUIC_LISTENERS)
	// Misdirected404: requests for a host of another server of the port are answered 404 instead of 421
	// (NAVARCH_ENABLE_MISDIRECTED_REQUESTS=false).
	Misdirected404 bool
	// Local: endpoints may be addresses that lead to the router's own Pod or Node (NAVARCH_GATEWAY_LOCAL_DESTINATIONS).
	Local bool
}

// Edge has the inputs of a router's listeners beside its Gateways. Comparable: routers of one Deployment have equal
// edges.
type Edge struct {
	// Workload has the services over the router's Pod, and the policies, extensions and settings that select it. Its
	// patches are the scope's.
	Workload
	// Labels are the router's labels that some rule names, as of Inputs. Rules for connections compare them.
	Labels intern.List[string]
	// Unprivileged: the Pod may not bind ports below 1024 (node metadata UNPRIVILEGED_POD).
	Unprivileged bool
	// QUIC: HTTP/3 is served, where a service over the Pod has a UDP port for it.
	QUIC bool
	// Misdirected404: as in RouterSettings.
	Misdirected404 bool
	// Routed: the scope has no hosts but those that its routes, extension providers and EnvoyFilters name.
	Routed bool
	// Local: endpoints may be addresses that lead to the router's own Pod or Node.
	Local bool
}

// String names the edge; equal edges have equal names, on every replica.
func (e Edge) String() string {
	out := fmt.Sprintf("unprivileged %v, closed %v, listening %v", e.Unprivileged, e.Closed, e.Listening)
	for _, list := range []intern.List[model.Key]{e.Services, e.Policies, e.Authentications} {
		for _, key := range list.All() {
			out += "/" + key.Path()
		}
	}
	for _, x := range e.Extensions.All() {
		out += fmt.Sprintf("/%s.%v", x.Key.Path(), x.Way)
	}
	if e.QUIC {
		out += "/HTTP/3"
	}
	if e.Misdirected404 {
		out += "/no 421"
	}
	if e.Routed {
		out += "/routed"
	}
	if e.Local {
		out += "/local destinations"
	}
	return out + fmt.Sprintf("/%v/%s/%v/%v/%v", e.Labels.All(), e.Telemetry.Path(), e.Self, e.Workload.Listeners, e.Served.All())
}

// router is the view of a gateway. All that it serves is of the scope, with its listeners. Sidecars and
// PeerAuthentications do not apply. The workload's layer has the patches of the bootstrap, and the configurations of
// extensions.
func (x *Index) router(s *mirror.Snapshot, root string, n Node) View {
	c, served := x.chosenFor(s, root, n)
	caps, listening := n.Caps&^(extensionCaps|xds.CapHeaderCase), listeningOf(n)
	v := View{
		Scope: Scope{Namespace: n.Namespace, Domain: n.Domain, Cluster: n.Cluster, Caps: caps, Mode: None,
			Listening: listening, Kind: Router, Filters: c.out},
		Inputs: x.inputs(c.labels, model.Key{}, n),
		Workload: Workload{Namespace: n.Namespace, Mode: None, Kind: Router, Filters: c.in, Caps: caps &^ xds.CapSelfDiscovery,
			Bootstrap: asksForBootstrap(n)},
	}
	stated, mesh := x.settingsOf(s, n)
	v.configure(stated, mesh, n)
	v.extend(c.extensions, n)
	v.Scope.Gateways, v.Scope.Routes = keys.List(gatewaysOf(s, n)...), stated.Routes
	v.Scope.Edge = unique.Make(Edge{Labels: c.labels, QUIC: n.Routers.QUIC, Misdirected404: n.Routers.Misdirected404, Routed: n.Routers.Routed,
		Local:        n.Routers.Local,
		Unprivileged: n.Metadata["UNPRIVILEGED_POD"] == "true",
		Workload: Workload{Namespace: n.Namespace, Services: c.services, Served: serving.List(served...), Closed: c.closed,
			Policies: c.policies, Authentications: c.authentications, Telemetry: c.telemetry, Self: x.self(s, root, n, stated, mesh),
			Extensions: v.Workload.Extensions, Listeners: proxyconfig.OwnOf(stated.Listeners, mesh.Listeners),
			HeaderCase: v.Scope.HeaderCase, Caps: caps &^ xds.CapSelfDiscovery, Mode: None, Listening: listening, Kind: Router}})
	return v
}

// gatewaysOf lists the Gateways that select a router, in order of precedence: by creation time, then name, then
// namespace (istio: pilot/pkg/model/push_context.go, mergeGateways). Their namespaces do not matter, unless the control
// plane is set so.
func gatewaysOf(s *mirror.Snapshot, n Node) (out []model.Key) {
	var found []*model.Gateway
	for r := range s.All(model.KindGateway) {
		g := r.(*model.Gateway)
		if gateways.Selects(g, n.Labels) && (g.Key.Namespace == n.Namespace || !n.Routers.OwnNamespace) {
			found = append(found, g)
		}
	}
	slices.SortFunc(found, gateways.Precedes)
	for _, g := range found {
		out = append(out, g.Key)
	}
	return out
}
