package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unique"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// View contains all facts that may decide a proxy's configuration. Views are comparable. At one snapshot, proxies with
// equal Views get equal configuration. Scope, Inputs and Workload are the layers of a View. Configuration for equal
// layers is planned only once.
type View struct {
	Scope    Scope
	Inputs   Inputs
	Workload Workload
	// Addresses lists the proxy's own IP addresses, if traffic is redirected to the proxy and a headless service
	// selects it. The service must have a TCP port whose protocol is not HTTP. Otherwise the list is empty. For a
	// Router it is always empty.
	Addresses intern.List[string]
	// Secrets is the verified identity with which the proxy requests Secrets. It is zero without a verified identity,
	// and for an identity of a namespace other than the proxy's. It is also zero if the proxy's cluster is not verified
	// (Node.ClusterUnproved). A proxy with the zero Identity gets no Secret.
	Secrets Identity
}

// Scope contains the facts that decide the outbound side of a proxy's configuration. Many proxies can have equal
// Scopes. A Scope is comparable.
type Scope struct {
	Namespace string
	Domain    string        // the DNS suffix of services
	Sidecar   model.Key     // the Sidecar that applies; zero if no Sidecar applies, and for a Router
	Cluster   string        // Node.Cluster; "" for the config cluster
	Caps      xds.Caps      // Node.Caps without extensionCaps and xds.CapHeaderCase
	Mode      Mode          // Node.Mode; None for a Router
	Listening xds.Listening // properties of the listeners, from the node's metadata and addresses
	Kind      Kind
	// Gateways lists the Gateways that select a Router, the oldest first. It is empty for other kinds of proxies.
	Gateways intern.List[model.Key]
	// Edge contains the inputs of a Router's listeners, except the Gateways. For other kinds of proxies it is the zero
	// handle.
	Edge unique.Handle[Edge]
	// Automatic is the IP family of the addresses that the proxy's agent returns for names of ServiceEntries with
	// automatic addresses. It is NoFamily if the agent does not resolve names for its Pod (DNS_CAPTURE). It is also
	// NoFamily for proxies that are not sidecars.
	Automatic Family
	// Resolver is the address of the agent's DNS server as "ip:port" (DNS_PROXY_ADDR). It is only set in a mesh whose
	// proxies query that server (ALLOW_ANY_DYNAMIC_DNS). It is "" for the default address, for a malformed address, and
	// if Automatic is NoFamily. See NameServer.
	Resolver string
	// Routes contains the settings of routes in the proxy's ProxyConfig, or else in the mesh's defaultConfig. It is
	// zero for a Proxyless node.
	Routes     proxyconfig.Routes
	HeaderCase bool               // the proxy preserves the case of header names
	Filters    intern.List[Patch] // the patches that apply to the outbound side, in order of application
}

// String returns a text that describes the scope. Equal scopes have equal texts on every replica. Different scopes of
// Routers may have equal texts (see Edge.String).
func (s Scope) String() string {
	mode := cmp.Or(kinds[s.Kind].name, [...]string{Redirect: "redirect", TProxy: "tproxy", None: "none"}[s.Mode])
	out := fmt.Sprintf("%s.%s/%s/%s/%x/%s", s.Namespace, s.Domain, s.Sidecar.Path(), s.Cluster, uint64(s.Caps), mode)
	if s.Listening != (xds.Listening{}) {
		out += fmt.Sprintf("/listening %v", s.Listening)
	}
	if s.Automatic != NoFamily {
		out += [...]string{IPv4: "/automatic IPv4", IPv6: "/automatic IPv6"}[s.Automatic]
	}
	if s.Resolver != "" {
		out += "/resolver " + s.Resolver
	}
	if s.Routes != (proxyconfig.Routes{}) {
		out += fmt.Sprintf("/%v", s.Routes)
	}
	if s.HeaderCase {
		out += "/header case"
	}
	for _, g := range s.Gateways.All() {
		out += "/" + g.Path()
	}
	if s.Edge != (unique.Handle[Edge]{}) {
		out += "/" + s.Edge.Value().String()
	}
	for _, p := range s.Filters.All() {
		out += fmt.Sprintf("/%s.%d", p.Filter.Path(), p.Index)
	}
	return out
}

// Workload contains the facts that decide the inbound side of a proxy's configuration. They are ports, settings, and
// the objects whose selectors select the proxy. Only Addresses is a property of a single proxy. A Workload is
// comparable. The Workload of a Router's View only has Namespace, Filters, Extensions, Bootstrap, Caps, Mode and Kind.
// The Edge of a Router contains a second Workload with the other facts. The second Workload has Telemetry, Self and
// Listeners, although these fields are zero in the Router's Inputs.
type Workload struct {
	Namespace string
	Sidecar   model.Key
	Services  intern.List[model.Key] // services that select the proxy, and ServiceEntries in Served, the oldest first
	Served    intern.List[Served]    // ports that ServiceEntries of the namespace define for the proxy, sorted
	// Closed is true if the workload refuses all connections. One reason is that a policy selects the workload and
	// cannot be enforced. The other is a mandatory extension that selects an application without a proxy, which cannot
	// run extensions.
	Closed bool
	// Peers lists the PeerAuthentications of the workload, of its namespace and of the mesh, at most one of each. They
	// are in order of precedence.
	Peers    intern.List[model.Key]
	Policies intern.List[model.Key] // enforceable AuthorizationPolicies that select the workload, sorted by key
	// Authentications lists the RequestAuthentications that select the workload. The root namespace comes first, and
	// within a namespace the oldest.
	Authentications intern.List[model.Key]
	Telemetry       model.Key // equals Inputs.Telemetry
	Self            Self      // equals Inputs.Self
	// Extensions lists the WasmPlugins and TrafficExtensions that select the workload, in order of application.
	Extensions intern.List[Extension]
	Listeners  proxyconfig.Own[proxyconfig.Listeners] // equals Inputs.Listeners
	HeaderCase bool                                   // equals Scope.HeaderCase
	Caps       xds.Caps                               // Scope.Caps without xds.CapSelfDiscovery
	Mode       Mode
	Listening  xds.Listening // equals Scope.Listening
	Kind       Kind
	// Labelled is true if the label security.istio.io/tlsMode declares mTLS to clients. It is set only for an
	// application without a proxy, whose server cannot accept both mTLS and plaintext.
	Labelled bool
	// Filters lists the patches that apply to the inbound side, to the bootstrap or to filter configurations, in order
	// of application. It also has patches that remove outbound clusters, because inbound listeners use outbound
	// clusters.
	Filters intern.List[Patch]
	// Bootstrap is true if the agent requests the changes that patches make to its bootstrap (NAVARCH_BOOTSTRAP).
	Bootstrap bool
	// Addresses lists the proxy's own IP addresses if listeners depend on them, and is empty otherwise. Listeners
	// depend on them in three cases. The proxy's Sidecar forwards inbound traffic to them (0.0.0.0:port, [::]:port).
	// The Sidecar binds listeners to them. The client is an application without a proxy that some service selects, and
	// its server may listen at them.
	Addresses intern.List[string]
}

// tlsModeLabel is the label by which endpoints declare that they accept mTLS.
const tlsModeLabel = "security.istio.io/tlsMode"

// Patch identifies one patch of an EnvoyFilter by its key and the index in spec.configPatches, from 0.
type Patch struct {
	Filter model.Key
	Index  int
}

var (
	keys    intern.Table[model.Key]
	strs    intern.Table[string]
	patches intern.Table[Patch]
)

// Of returns the View of a node at a resolved snapshot (a result of push/resolve). Each call builds an Index, which
// reads many records. Callers with many nodes create one Index with NewIndex instead.
func Of(s *mirror.Snapshot, n Node) View { return NewIndex(s).View(s, n) }

// View returns the View of a node at a resolved snapshot. The Index must be that of the same snapshot. An Index of an
// older snapshot also serves if Apply was called for each later edit. View updates the caches of the Index.
func (x *Index) View(s *mirror.Snapshot, n Node) View {
	v := x.view(s, n)
	if n.Verified.Namespace == n.Namespace && !n.ClusterUnproved {
		v.Secrets = n.Verified
		v.Secrets.Cluster = n.Cluster
	}
	return v
}

// view returns the View of a node without Secrets.
func (x *Index) view(s *mirror.Snapshot, n Node) View {
	root := s.Mesh().Spec.GetRootNamespace()
	if !kinds[n.Kind].inbound {
		return x.router(s, root, n)
	}
	c, served := x.chosenFor(s, root, n)
	caps := n.Caps &^ (extensionCaps | xds.CapHeaderCase)
	automatic := automaticOf(n)
	v := View{
		Scope: Scope{Namespace: n.Namespace, Domain: n.Domain, Sidecar: c.sidecar, Cluster: n.Cluster,
			Caps: caps, Mode: n.Mode, Listening: listeningOf(n), Kind: n.Kind, Automatic: automatic,
			Resolver: resolverOf(s.Mesh().Spec, n, automatic), Filters: c.out},
		Inputs: x.inputs(c.labels, c.telemetry, n),
		Workload: Workload{Namespace: n.Namespace, Sidecar: c.sidecar, Services: c.services,
			Served: serving.List(served...), Closed: c.closed, Peers: c.peers, Policies: c.policies,
			Authentications: c.authentications, Caps: caps &^ xds.CapSelfDiscovery, Mode: n.Mode,
			Listening: listeningOf(n), Kind: n.Kind, Filters: c.in},
	}
	if n.Kind == Proxyless && c.services.Len() > 0 {
		v.Workload.Addresses = strs.List(n.Addresses...)
	}
	own, mesh := x.settingsOf(s, n)
	v.configure(own, mesh, n)
	v.Inputs.Own = ownOf(n, c.services)
	v.Inputs.Self = x.self(s, root, n, own, mesh)
	v.Workload.Telemetry, v.Workload.Self = v.Inputs.Telemetry, v.Inputs.Self
	v.extend(c.extensions, n)
	v.Workload.Bootstrap = asksForBootstrap(n)
	v.Workload.Labelled = n.Kind == Proxyless && n.Labels[tlsModeLabel] == "istio"
	if (c.ownAddress || c.bindsOwn && n.Mode == None) && n.Kind == Sidecar {
		v.Workload.Addresses = strs.List(n.Addresses...)
	}
	if c.headless && n.Mode != None {
		v.Addresses = strs.List(n.Addresses...)
	}
	return v
}

// asksForBootstrap reports whether the proxy's agent requests the changes that patches make to its bootstrap.
func asksForBootstrap(n Node) bool { return n.Metadata["NAVARCH_BOOTSTRAP"] == "xds" }

// sidecarOf returns the key of the Sidecar that applies, or the zero Key. A Sidecar of the namespace that selects the
// proxy precedes Sidecars without a selector. A Sidecar of the namespace precedes Sidecars of the root namespace. Of
// several, the oldest applies (https://istio.io/latest/docs/reference/config/networking/sidecar/).
func sidecarOf(s *mirror.Snapshot, root string, n Node) model.Key {
	var selecting, general, fallback *model.Sidecar
	older := func(have, other *model.Sidecar) *model.Sidecar {
		if have == nil || other.Older(&have.Head) < 0 {
			return other
		}
		return have
	}
	for r := range s.In(model.KindSidecar, n.Namespace) {
		switch sc := r.(*model.Sidecar); {
		case len(sc.Spec.GetWorkloadSelector().GetLabels()) == 0:
			general = older(general, sc)
		case model.Matches(sc.Spec.GetWorkloadSelector().GetLabels(), n.Labels):
			selecting = older(selecting, sc)
		}
	}
	if n.Namespace != root {
		for r := range s.In(model.KindSidecar, root) {
			if sc := r.(*model.Sidecar); len(sc.Spec.GetWorkloadSelector().GetLabels()) == 0 {
				fallback = older(fallback, sc)
			}
		}
	}
	for _, sc := range []*model.Sidecar{selecting, general, fallback} {
		if sc != nil {
			return sc.Key
		}
	}
	return model.Key{}
}

// ownAddress reports whether the ingress listeners of a Sidecar depend on the workload's own address. The result named
// own is true if a listener forwards to that address, or has no bind and the capture mode NONE. The result named binds
// is true if a listener has no bind. A proxy without traffic redirection binds a listener without a bind to the
// workload's address (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener,
// defaultEndpoint and bind).
func ownAddress(s *mirror.Snapshot, sidecar model.Key) (own, binds bool) {
	r, ok := s.Get(sidecar)
	if !ok {
		return false, false
	}
	for _, l := range r.(*model.Sidecar).Spec.GetIngress() {
		at, err := netip.ParseAddrPort(l.GetDefaultEndpoint())
		binds = binds || l.GetBind() == ""
		own = own || err == nil && at.Addr().IsUnspecified() || l.GetBind() == "" && l.GetCaptureMode() == networkingv1.CaptureMode_NONE
	}
	return own, binds
}

// servicesOf returns the services in the proxy's namespace that select the proxy, the oldest first. They are
// ServiceEntries, and Kubernetes Services of the proxy's own cluster, because Services only select Pods of their
// cluster. The result named headless is true if one of them is headless and has a port for which notHTTP is true.
func servicesOf(s *mirror.Snapshot, n Node) (services []model.Key, headless bool) {
	var found []*model.Service
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.In(kind, n.Namespace) {
			svc := r.(*model.Service)
			local := kind == model.KindServiceEntry || svc.Key.Origin.Cluster() == n.Cluster
			if local && len(svc.Spec.GetSelector()) > 0 && model.Matches(svc.Spec.GetSelector(), n.Labels) {
				found = append(found, svc)
				headless = headless || svc.Spec.GetHeadless() && slices.ContainsFunc(svc.Spec.GetPorts(), notHTTP)
			}
		}
	}
	slices.SortFunc(found, func(a, b *model.Service) int { return a.Older(&b.Head) })
	for _, svc := range found {
		services = append(services, svc.Key)
	}
	return services, headless
}

// notHTTP reports whether a port is a TCP port whose protocol is not HTTP, or is unknown.
func notHTTP(p *model.ServicePort) bool {
	switch p.GetProtocol() {
	case model.Protocol_PROTOCOL_AUTO, model.Protocol_PROTOCOL_HTTPS, model.Protocol_PROTOCOL_TLS,
		model.Protocol_PROTOCOL_TCP, model.Protocol_PROTOCOL_MONGO:
		return true
	default:
		return false
	}
}

// filtersOf returns the patches that apply to the proxy's outbound side, and those that apply to its inbound side. For
// a gateway, the second list only has patches of the bootstrap. The result named picky is true if a patch also matches
// by the proxy's version or metadata.
func filtersOf(s *mirror.Snapshot, root string, n Node) (outbound, inbound intern.List[Patch], picky bool) {
	var out, in []Patch
	for _, f := range selectedFilters(s, root, n) {
		for i, p := range f.Spec.GetConfigPatches() {
			proxy := p.GetMatch().GetProxy()
			picky = picky || proxy.GetProxyVersion() != "" || len(proxy.GetMetadata()) > 0
			if !proxyMatches(proxy, n) {
				continue
			}
			scope, workload := layersOf(p, n.Kind)
			if scope {
				out = append(out, Patch{f.Key, i})
			}
			if workload {
				in = append(in, Patch{f.Key, i})
			}
		}
	}
	return patches.List(out...), patches.List(in...), picky
}

// selectedFilters returns the EnvoyFilters of the root namespace and of the proxy's namespace that select the proxy, in
// order of application. They are sorted by priority, then by namespace (the root namespace first), by creation time and
// by name. Names are compared with a dot appended, as in istiod (pilot/pkg/model/push_context.go): "a-b" precedes "a".
func selectedFilters(s *mirror.Snapshot, root string, n Node) (found []*model.EnvoyFilter) {
	namespaces := []string{root, n.Namespace}
	if root == n.Namespace {
		namespaces = namespaces[:1]
	}
	for _, namespace := range namespaces {
		for r := range s.In(model.KindEnvoyFilter, namespace) {
			f := r.(*model.EnvoyFilter)
			if model.Attaches(f.Key, f.Spec.GetTargetRefs(), f.Spec.GetWorkloadSelector().GetLabels(), n.Namespace, n.Labels) {
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b *model.EnvoyFilter) int {
		order := cmp.Compare(a.Spec.GetPriority(), b.Spec.GetPriority())
		if order == 0 && a.Key.Namespace != b.Key.Namespace {
			order = slices.Index(namespaces, a.Key.Namespace) - slices.Index(namespaces, b.Key.Namespace)
		}
		return cmp.Or(order, model.CompareCreated(a.Created, b.Created), strings.Compare(a.Key.Name+".", b.Key.Name+"."))
	})
	return found
}

// proxyMatches reports whether the proxy's version and metadata satisfy the match of a patch.
func proxyMatches(m *networkingv1.EnvoyFilter_ProxyMatch, n Node) bool {
	if m.GetProxyVersion() != "" {
		re, err := regexp.Compile(m.GetProxyVersion())
		if err != nil || n.Version == "" || !re.MatchString(n.Version) {
			return false
		}
	}
	return model.Matches(m.GetMetadata(), n.Metadata)
}
