package view

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// View is everything that may decide a proxy's configuration, in layers. Comparable: proxies of equal views get equal
// configuration, and equal parts are planned once.
type View struct {
	Scope    Scope
	Inputs   Inputs
	Workload Workload
	// Addresses are the proxy's own, where a headless service with TCP ports includes them; else empty.
	Addresses intern.List[string]
	// Secrets is the identity as which the proxy asks for Secrets: that which it has proved, where it is of the proxy's
	// namespace and nothing is doubtful about its cluster. Zero: it may have none, ever.
	Secrets Identity
}

// Scope is the outbound side. Nothing in it names a proxy.
type Scope struct {
	Namespace string
	Domain    string    // DNS suffix of services
	Sidecar   model.Key // the Sidecar that applies; zero: none
	Cluster   string    // the proxy's, see Node; not an input, see the package
	Caps      xds.Caps
	Mode      Mode
	Listening xds.Listening
	Kind      Kind
	// Gateways are the Gateways of Istio that select a Router, the oldest first. Scopes of other kinds have an empty list.
	Gateways intern.List[model.Key]
	// Automatic is the family of those automatic addresses of ServiceEntries that its Pod is told of: its agent answers
	// questions of the Pod for names (DNS_CAPTURE).
	Automatic Family
	// Resolver is where that agent says that it answers, where the mesh has proxies ask it (ALLOW_ANY_DYNAMIC_DNS, and
	// DNS_PROXY_ADDR); empty: where agents usually do. See NameServer.
	Resolver string
	// Routes and HeaderCase are what its ProxyConfig, or the mesh's, says of routes, and of the case of headers' names.
	Routes     proxyconfig.Routes
	HeaderCase bool
	Filters    intern.List[Patch] // that reach the outbound side, in order of application
}

// String names the scope; equal scopes have equal names, on every replica.
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
	for _, p := range s.Filters.All() {
		out += fmt.Sprintf("/%s.%d", p.Filter.Path(), p.Index)
	}
	return out
}

// Workload is the inbound side: ports, and what selectors pick. Nothing in it names a proxy, but for Addresses.
type Workload struct {
	Namespace string
	Sidecar   model.Key
	Services  intern.List[model.Key] // whose selectors match, and those of Served, the oldest first
	Served    intern.List[Served]    // what ServiceEntries have at its address
	Closed    bool                   // a policy that could not be understood selects it
	Peers     intern.List[model.Key] // PeerAuthentications, as they go before one another: for it, its namespace, the mesh
	Policies  intern.List[model.Key] // AuthorizationPolicies that select it, by key
	// Authentications are the RequestAuthentications that select it: those of the root namespace first, of each the
	// oldest first.
	Authentications intern.List[model.Key]
	Telemetry       model.Key // as Inputs.Telemetry
	Self            Self      // as Inputs.Self
	// Extensions are the WasmPlugins and TrafficExtensions that select it, in order.
	Extensions intern.List[Extension]
	Listeners  proxyconfig.Own[proxyconfig.Listeners] // as Inputs.Listeners
	HeaderCase bool                                   // as Scope.HeaderCase
	Caps       xds.Caps
	Mode       Mode
	Listening  xds.Listening
	Kind       Kind // a Router has no inbound side
	// Labelled: clients are told by the label security.istio.io/tlsMode that it takes mTLS. Of an application without a
	// proxy alone, which cannot take both that and connections in the clear.
	Labelled bool
	Filters  intern.List[Patch] // that reach the inbound side, or the bootstrap, in order of application
	// Bootstrap: its agent asks what patches change of its bootstrap (NAVARCH_BOOTSTRAP).
	Bootstrap bool
	// Addresses are the proxy's own, where its Sidecar hands what comes in to them (0.0.0.0:port, [::]:port), or has
	// listeners bound there, or it is an application without a proxy, whose server may listen there; else empty.
	Addresses intern.List[string]
}

// tlsModeLabel is the label by which endpoints say that they take mTLS.
const tlsModeLabel = "security.istio.io/tlsMode"

// Patch names one patch of an EnvoyFilter.
type Patch struct {
	Filter model.Key
	Index  int
}

var (
	keys    intern.Table[model.Key]
	strs    intern.Table[string]
	patches intern.Table[Patch]
)

// Of is the view of a node at a snapshot.
func Of(s *mirror.Snapshot, n Node) View { return NewIndex(s).View(s, n) }

// View is Of with an index of the same snapshot.
func (x *Index) View(s *mirror.Snapshot, n Node) View {
	v := x.view(s, n)
	if n.Verified.Namespace == n.Namespace && !n.ClusterUnproved {
		v.Secrets = n.Verified
		v.Secrets.Cluster = n.Cluster
	}
	return v
}

func (x *Index) view(s *mirror.Snapshot, n Node) View {
	root := s.Mesh().Spec.GetRootNamespace()
	if !kinds[n.Kind].inbound {
		return x.router(s, root, n)
	}
	c, served := x.choice(s, root, n), x.servedBy(s, n)
	if len(served) > 0 {
		c.services = withServed(s, c.services, served)
	}
	if c.picky {
		c.out, c.in, _ = filtersOf(s, root, n)
	}
	caps := n.Caps &^ (extensionCaps | xds.CapHeaderCase)
	automatic := automaticOf(n)
	v := View{
		Scope: Scope{Namespace: n.Namespace, Domain: n.Domain, Sidecar: c.sidecar, Cluster: n.Cluster,
			Caps: caps, Mode: n.Mode, Listening: listeningOf(n), Kind: n.Kind, Automatic: automatic, Resolver: resolverOf(s.Mesh().Spec, n, automatic), Filters: c.out},
		Inputs: x.inputs(c.labels, c.telemetry, n),
		Workload: Workload{Namespace: n.Namespace, Sidecar: c.sidecar, Services: c.services, Served: serving.List(served...), Closed: c.closed, Peers: c.peers,
			Policies: c.policies, Authentications: c.authentications, Caps: caps &^ xds.CapSelfDiscovery, Mode: n.Mode, Listening: listeningOf(n), Kind: n.Kind, Filters: c.in},
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

// router is the view of a gateway: the outbound side, without Sidecars. EnvoyFilters add its listeners; those of
// Gateways are not served yet. The workload's layer has the patches of its bootstrap alone.
func (x *Index) router(s *mirror.Snapshot, root string, n Node) View {
	filters, own, _ := filtersOf(s, root, n)
	v := View{
		Scope: Scope{Namespace: n.Namespace, Domain: n.Domain, Cluster: n.Cluster, Caps: n.Caps &^ (extensionCaps | xds.CapHeaderCase), Mode: None,
			Kind: Router, Filters: filters},
		Inputs:   x.inputs(x.labelsOf(n), model.Key{}, n),
		Workload: Workload{Namespace: n.Namespace, Mode: None, Kind: Router, Filters: own, Bootstrap: asksForBootstrap(n)},
	}
	stated, mesh := x.settingsOf(s, n)
	v.configure(stated, mesh, n)
	return v
}

// asksForBootstrap says whether a proxy's agent asks what patches change of its bootstrap.
func asksForBootstrap(n Node) bool { return n.Metadata["NAVARCH_BOOTSTRAP"] == "xds" }

// sidecarOf finds the Sidecar that applies: in the namespace one that selects the proxy, then one without a selector,
// then the root namespace's without a selector (https://istio.io/latest/docs/reference/config/networking/sidecar/).
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

// ownAddress says whether an ingress listener of a Sidecar hands on to the workload's own address, or is bound there
// because it says no other and nothing is redirected to it; binds, whether one would be for a proxy to which nothing
// is redirected at all (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener,
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

// servicesOf lists the services of the namespace whose selectors match: Kubernetes' of the proxy's own cluster, since
// they select among its pods, and ServiceEntries. It says whether one of them is headless with a port that is not
// HTTP.
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

func notHTTP(p *model.ServicePort) bool {
	switch p.GetProtocol() {
	case model.Protocol_PROTOCOL_AUTO, model.Protocol_PROTOCOL_HTTPS, model.Protocol_PROTOCOL_TLS, model.Protocol_PROTOCOL_TCP, model.Protocol_PROTOCOL_MONGO:
		return true
	default:
		return false
	}
}

// filtersOf lists the patches that select the proxy, for its outbound and its inbound side; a gateway has the former
// alone. picky: one of them asks for more of the proxy than labels.
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

// selectedFilters lists the EnvoyFilters that select the proxy, of the root namespace and of its own, in order of
// application: by priority; of equal ones the root namespace's first; then by creation and name, as istiod compares
// names (pilot/pkg/model/push_context.go): with a dot behind, "a-b" before "a".
func selectedFilters(s *mirror.Snapshot, root string, n Node) (found []*model.EnvoyFilter) {
	namespaces := []string{root, n.Namespace}
	if root == n.Namespace {
		namespaces = namespaces[:1]
	}
	for _, namespace := range namespaces {
		for r := range s.In(model.KindEnvoyFilter, namespace) {
			f := r.(*model.EnvoyFilter)
			if len(f.Spec.GetTargetRefs()) == 0 && model.Matches(f.Spec.GetWorkloadSelector().GetLabels(), n.Labels) {
				found = append(found, f)
			}
		}
	}
	slices.SortFunc(found, func(a, b *model.EnvoyFilter) int {
		order := cmp.Compare(a.Spec.GetPriority(), b.Spec.GetPriority())
		if order == 0 && a.Key.Namespace != b.Key.Namespace {
			order = slices.Index(namespaces, a.Key.Namespace) - slices.Index(namespaces, b.Key.Namespace)
		}
		return cmp.Or(order, cmp.Compare(a.Created, b.Created), strings.Compare(a.Key.Name+".", b.Key.Name+"."))
	})
	return found
}

func proxyMatches(m *networkingv1.EnvoyFilter_ProxyMatch, n Node) bool {
	if m.GetProxyVersion() != "" {
		re, err := regexp.Compile(m.GetProxyVersion())
		if err != nil || n.Version == "" || !re.MatchString(n.Version) {
			return false
		}
	}
	return model.Matches(m.GetMetadata(), n.Metadata)
}
