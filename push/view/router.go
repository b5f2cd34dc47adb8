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

// RouterSettings contains settings of a control plane for all of its routers (gateways). They come from environment
// variables. The zero value has the defaults of these variables.
type RouterSettings struct {
	OwnNamespace bool // only Gateways of a router's own namespace apply to it (PILOT_SCOPE_GATEWAY_TO_NAMESPACE)
	Routed       bool // a router gets only clusters that its routes may use (PILOT_FILTER_GATEWAY_CLUSTER_CONFIG)
	QUIC         bool // HTTP/3 is served in addition to HTTPS (PILOT_ENABLE_QUIC_LISTENERS)
	// Misdirected404 is true if a gateway answers 404 instead of 421 to a request whose host belongs to another server
	// at the same port (NAVARCH_ENABLE_MISDIRECTED_REQUESTS=false).
	Misdirected404 bool
	// Local is true if a router may also connect to endpoints of its own Pod or Node, such as 127.0.0.1
	// (NAVARCH_GATEWAY_LOCAL_DESTINATIONS).
	Local bool
}

// Edge contains the facts that decide a router's listeners, except its Gateways. It is comparable. Routers of one
// Deployment usually have equal edges.
type Edge struct {
	// Workload contains the services that select the router's Pod, and the policies, extensions and settings that apply
	// to the router. Sidecar, Peers, Labelled, Filters, Bootstrap and Addresses are zero. Scope.Filters has the patches
	// of EnvoyFilters.
	Workload
	// Labels equals Inputs.Labels of the router. The matches of tcp and tls routes in VirtualServices compare these
	// labels.
	Labels intern.List[string]
	// Unprivileged is true if the Pod may not bind ports below 1024 (UNPRIVILEGED_POD of the node's metadata).
	Unprivileged bool
	// QUIC has the meaning of RouterSettings.QUIC. HTTP/3 also requires a service of the Pod with a UDP port.
	QUIC bool
	// Misdirected404 has the meaning of RouterSettings.Misdirected404.
	Misdirected404 bool
	// Routed has the meaning of RouterSettings.Routed. Clusters for the hosts of extension providers and EnvoyFilters
	// are kept too.
	Routed bool
	// Local has the meaning of RouterSettings.Local.
	Local bool
}

// String returns a text that describes the edge. Equal edges have equal texts on every replica. Different edges may
// have equal texts, because the text has only the names, not the values, of the settings in Listeners.
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

// router returns the View of a gateway. The gateway's listeners belong to the scope, and Scope.Edge has the facts that
// decide them. Of the objects that select the gateway, the field Workload of the View has only the extensions and the
// patches of the bootstrap. Sidecars and PeerAuthentications do not apply to gateways.
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

// gatewaysOf returns the Gateways that select a router, in order of precedence: by creation time, name and namespace
// (istio: pilot/pkg/model/push_context.go, mergeGateways). Gateways of all namespaces count, unless
// RouterSettings.OwnNamespace is set.
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
