package plan

import (
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// entry is one host's virtual host in one route configuration. Siblings share it: it is replaced, never changed, once it
// is planned.
type entry struct {
	host   string
	port   uint32
	alone  bool // in a route configuration of its own (host:port), where every name means it
	claims intern.List[string]
	vs     *model.VirtualService
	reads  intern.List[string] // keys of proxy labels that its rules read
	spec   vhost.Spec
	frag   *xds.Fragment // nil: not built, or left out
}

// withoutService is the port at which a host that only VirtualServices name is known.
const withoutService = 80

// entriesOf lists the route configurations that a host has a virtual host in: one for each port that is, or may be, HTTP.
func (s *scope) entriesOf(h *host) map[string]*entry {
	out := map[string]*entry{}
	if h.name == "*" {
		return out // matches everything: no virtual host of its own
	}
	add := func(rc string, port uint32, e *egress, alone bool) {
		if _, dup := out[rc]; dup {
			return
		}
		en := &entry{host: h.name, port: port, alone: alone, claims: strs.List("*")}
		if !alone {
			en.claims = strs.List(s.claims(h.name, h.svc)...)
		}
		if en.vs = s.virtualServiceNaming(h.name, e); h.svc != nil {
			en.vs = s.virtualServiceFor(h.name, e)
		}
		if en.vs != nil && len(en.vs.Spec.GetHttp()) == 0 {
			en.vs = nil
		}
		if en.vs != nil {
			en.reads = strs.List(vhost.SourceLabelKeys(en.vs)...)
		}
		if h.svc != nil || en.vs != nil {
			out[rc] = en
		}
	}
	if h.svc == nil {
		if e := s.routed(withoutService); e != nil {
			add(s.routeName(e, withoutService), withoutService, e, false)
		}
		return out
	}
	for _, p := range h.svc.Spec.GetPorts() {
		sniff := p.GetProtocol() == model.Protocol_PROTOCOL_AUTO
		if portOf(h.svc, p.GetNumber()) != p || !sniff && !isHTTP(p.GetProtocol()) {
			continue
		}
		if e := s.routed(p.GetNumber()); e != nil && e.has(h.svc, h.name) {
			add(s.routeName(e, p.GetNumber()), p.GetNumber(), e, false)
		}
		for _, e := range s.egress {
			if !e.has(h.svc, h.name) {
				continue
			}
			if e.unixSocket() {
				add(e.bind, p.GetNumber(), e, false)
			} else if sniff && e.bind == "" && !e.direct && (e.port == 0 || e.port == p.GetNumber()) {
				add(xds.VirtualHost(h.name, p.GetNumber()), p.GetNumber(), e, true)
			}
		}
	}
	return out
}

// claims are the names that a host would have: itself, its short names as a Kubernetes service, itself with the dot by
// which DNS marks a name as absolute (RFC 1034 section 3.1; clients send it as it is), its virtual addresses; of a headless
// service also the names of its pods.
func (s *scope) claims(name string, svc *model.Service) []string {
	out := append([]string{name}, shortNames(name, s.key.Namespace, s.key.Domain)...)
	if _, err := netip.ParseAddr(name); err != nil {
		out = append(out, name+".")
	}
	if svc == nil {
		return out
	}
	if svc.Spec.GetHeadless() && svc.Key.Kind == model.KindService {
		for _, d := range slices.Clone(out) {
			out = append(out, "*."+d)
		}
	}
	for _, a := range s.addresses(svc) {
		if ip, ok := single(a); ok {
			if strings.Contains(ip, ":") {
				ip = "[" + ip + "]"
			}
			out = append(out, ip)
		}
	}
	return out
}

// shortNames are the names under which a resolver finds name.namespace.svc.domain: from its own namespace also `name`.
func shortNames(host, namespace, domain string) []string {
	rest, ok := strings.CutSuffix(host, "."+domain)
	name, ns, two := strings.Cut(rest, ".")
	if !ok || !two || name == "" || name == "*" || ns == "" || strings.Contains(ns, ".") {
		return nil
	}
	out := []string{rest}
	if svc, _, _ := strings.Cut(domain, "."); svc == "svc" {
		out = append(out, rest+".svc")
	}
	if ns == namespace {
		out = append([]string{name}, out...)
	}
	return out
}

// rivals calls f with every host that might claim a name too.
func (s *scope) rivals(claim string, f func(host string)) {
	address := strings.Trim(claim, "[]")
	for h := range s.index.addresses[address] {
		f(h)
	}
	claim = strings.TrimSuffix(claim, ".") // see claims
	for i, name := range [...]string{claim, strings.TrimPrefix(claim, "*.")} {
		if i == 1 && name == claim {
			break
		}
		f(name)
		switch strings.Count(name, ".") { // see shortNames
		case 0:
			f(name + "." + s.key.Namespace + "." + s.key.Domain)
		case 1:
			f(name + "." + s.key.Domain)
		case 2:
			if bare, ok := strings.CutSuffix(name, ".svc"); ok {
				f(bare + "." + s.key.Domain)
			}
		}
	}
}

// loses says whether another host of the route configuration, earlier by name, has the claim.
func (s *scope) loses(rc *routes, en *entry, claim string) bool {
	lost := rc.taken[claim]
	s.rivals(claim, func(host string) {
		if other := rc.entries.get(host); !lost && other != nil && host < en.host && slices.Contains(other.claims.All(), claim) {
			lost = true
		}
	})
	return lost
}

// specOf decides a virtual host for proxies with these facets: its domains, and what the destinations of its rules mean
// here. Where no rule is for them, the host is left to its service. False: no name is left for it, or nothing answers.
func (s *scope) specOf(rc *routes, en *entry, proxyInputs []string, found *[]Problem) (vhost.Spec, bool) {
	var domains []string
	for _, c := range en.claims.All() {
		if !en.alone && s.loses(rc, en, c) {
			*found = append(*found, warning(s.blame(en), problem.Duplicate, "spec.hosts", "name "+c+" at port "+rc.name+" belongs to another host"))
			continue
		}
		domains = append(domains, c)
	}
	if len(domains) == 0 {
		return vhost.Spec{}, false
	}
	spec := vhost.Spec{Host: en.host, Port: en.port, Domains: strs.List(domains...), Mesh: s.mesh, Caps: s.anonymous()}
	name := xds.VirtualHost(en.host, en.port)
	spec.Patches = s.patches.matching(func(p model.Patch) bool { return patch.VirtualHostMatches(p, rc.name, rc.port, name) })
	labels := labelsRead(proxyInputs, en.reads.All())
	if en.vs == nil || !vhost.Applies(en.vs, en.port, labels.All(), s.key.Namespace) {
		spec.Destinations = destinations.List(s.destination(vhost.Ref{Host: en.host, Port: en.port}, en.port))
		return spec, s.hosts.get(en.host).svc != nil
	}
	spec.VirtualService, spec.Labels = en.vs, labels
	if vhost.ReadsNamespace(en.vs) {
		spec.Namespace = s.key.Namespace
	}
	var list []vhost.Destination
	for _, ref := range vhost.Named(en.vs) {
		d := s.destination(ref, en.port)
		if d.Cluster == "" {
			*found = append(*found, warning(en.vs.Key, problem.NotFound, "spec.http", "destination "+ref.Host+describe(ref)+" is not there; requests to it are answered 503"))
		}
		list = append(list, d)
	}
	spec.Destinations = destinations.List(list...)
	return spec, true
}

func describe(ref vhost.Ref) string {
	if ref.Subset != "" {
		return " subset " + ref.Subset
	}
	return ""
}

// blame is the object that makes an entry.
func (s *scope) blame(en *entry) model.Key {
	if h := s.hosts.get(en.host); h != nil && h.svc != nil {
		return h.svc.Key
	}
	if en.vs != nil {
		return en.vs.Key
	}
	return model.Key{}
}

func (s *scope) destination(ref vhost.Ref, listenPort uint32) vhost.Destination {
	d := vhost.Destination{Host: ref.Host, Subset: ref.Subset, Port: ref.Port}
	if d.Cluster = s.clusterFor(ref.Host, ref.Subset, ref.Port, listenPort); d.Cluster != "" {
		d.Rule = s.hosts.get(ref.Host).rules.hashing(ref.Subset)
	}
	return d
}

// clusterFor is the cluster that a destination means: at its port, or the service's only one, or else the one that the
// request came to. Empty: there is no such service, port or subset in this scope.
func (s *scope) clusterFor(name, subset string, port, listenPort uint32) string {
	h := s.hosts.get(name)
	if h == nil || h.svc == nil {
		return ""
	}
	if port == 0 {
		port = listenPort
		if ports := h.svc.Spec.GetPorts(); len(ports) == 1 {
			port = ports[0].GetNumber()
		}
	}
	if portOf(h.svc, port) == nil || !s.hasPort(h, port) {
		return ""
	}
	if subset != "" {
		if _, ok := h.rules.subset(subset); !ok {
			return ""
		}
	}
	return xds.OutboundCluster(port, subset, name)
}

// labelsRead are the facets whose keys are read.
func labelsRead(proxyInputs, keys []string) intern.List[string] {
	var out []string
	for _, f := range proxyInputs {
		if key, _, _ := strings.Cut(f, "="); slices.Contains(keys, key) {
			out = append(out, f)
		}
	}
	return strs.List(out...)
}
