package sidecar

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// entry is one host's virtual host in one route configuration. Cloned scopes share it: it is replaced, never changed, once it
// is planned.
type entry struct {
	id      string // within the route configuration
	host    string
	port    uint32
	alone   bool // in a route configuration of its own (host:port), where every name means it
	domains intern.List[string]
	service *model.Service // of the host; nil: a VirtualService alone makes it known
	own     bool           // the service is of the scope's namespace; kept, since a clone for another namespace begins with this entry
	vs      *model.VirtualService
	reads   intern.List[string] // keys of proxy labels that its rules read
	spec    vhost.Spec
	frag    *xds.Fragment // nil: not built, or left out
}

// sharedEntry is the key of layer.Share.
type sharedEntry entry

func (en *entry) equal(o *entry) bool { return *en == *o }

// withoutService is the port at which a host that a VirtualService names is known, whatever ports its service has.
const withoutService = 80

// entriesOf lists the route configurations that a host has a virtual host in: one for each port that is, or may be, HTTP, and for those at which
// a VirtualService alone makes it known.
func (s *scope) entriesOf(h *host.Host) map[routeKey]*entry {
	out := map[routeKey]*entry{}
	if h.Name == "*" {
		return out // matches everything: no virtual host of its own
	}
	add := func(rc routeKey, port uint32, vs *model.VirtualService, domains []string) {
		if _, dup := out[rc]; dup {
			return
		}
		en := &entry{id: rc.entry(h.Name), host: h.Name, port: port, alone: rc.kind == ofHost, domains: strs.List(domains...), service: h.Service,
			own: h.Service != nil && h.Service.Key.Namespace == s.key.Namespace}
		if vs != nil {
			en.vs, en.reads = vs, strs.List(virtualservice.RequestLabelKeys(vs)...)
		}
		out[rc] = en
	}
	if h.Service != nil {
		s.servedEntries(h, func(rc routeKey, port uint32, e *egress) {
			domains := []string{"*"}
			if rc.kind != ofHost {
				domains = rc.domains(s.domainsOf(h, port))
			}
			add(rc, port, s.hosts.VirtualServiceFor(h.Name, e.Imports), domains)
		})
	}
	for _, e := range s.egress {
		if vs := s.hosts.VirtualServiceNaming(h.Name, e.Imports); vs != nil {
			domains := []string{h.Name}
			if h.Alias() != nil {
				domains = s.namesOf(h.Name)
			}
			for _, port := range s.named(h, vs, e) {
				add(keyOf(e, port), port, vs, domains)
				if e == s.proxied() {
					rc := routeKey{kind: ofProxy, port: port}
					add(rc, port, vs, rc.domains(domains))
				}
			}
		}
	}
	return out
}

// servedEntries calls add with the route configurations of a host's own ports.
func (s *scope) servedEntries(h *host.Host, add func(rc routeKey, port uint32, e *egress)) {
	for p := range h.Ports() {
		sniff := p.GetProtocol() == model.Protocol_PROTOCOL_AUTO
		if !sniff && !input.IsHTTP(p.GetProtocol()) {
			continue
		}
		if e := s.routed(p.GetNumber()); e != nil && e.Has(h.Service, h.Name) {
			add(keyOf(e, p.GetNumber()), p.GetNumber(), e)
		}
		if e := s.proxied(); e != nil && e.Has(h.Service, h.Name) {
			add(routeKey{kind: ofProxy, port: p.GetNumber()}, p.GetNumber(), e)
		}
		for _, e := range s.egress {
			if !e.Has(h.Service, h.Name) {
				continue
			}
			if e.unixSocket() {
				add(keyOf(e, p.GetNumber()), p.GetNumber(), e)
			} else if sniff && e.bind == "" && !e.direct && (e.port == 0 || e.port == p.GetNumber()) {
				add(routeKey{kind: ofHost, port: p.GetNumber(), text: h.Name}, p.GetNumber(), e)
			}
		}
	}
}

// named are the ports at which a VirtualService makes a host known that has none of its own there: 80, those that it has as another name of a host
// (ExternalName), and those of HTTP that its other hosts have, or services that one of these covers and for which no VirtualService is more specific. A
// wildcard is not known at ports of services that it covers, or that cover it: there its rules are for these alone
// (istio: pilot/pkg/networking/core/route, buildSidecarVirtualHostsForVirtualService, separateVSHostsAndServices).
func (s *scope) named(h *host.Host, vs *model.VirtualService, e *egress) (ports []uint32) {
	var overlapped map[uint32]bool
	if input.IsWildcard(h.Name) {
		overlapped = s.overlapped(h.Name, e)
	}
	take := func(port uint32) {
		own := h.At(port) != nil
		if !own && s.routed(port) == e && !slices.Contains(ports, port) && !overlapped[port] {
			ports = append(ports, port)
		}
	}
	take(withoutService)
	if alias := h.Alias(); alias != nil {
		for _, p := range alias.Spec.GetPorts() {
			if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || input.IsHTTP(p.GetProtocol()) {
				take(p.GetNumber())
			}
		}
	}
	for _, port := range s.portsOf(vs, e) {
		take(port)
	}
	return ports
}

// servedBy is the key of scope.ports.
type servedBy struct {
	vs *model.VirtualService
	e  *egress
}

// portsOf are the ports of HTTP that the hosts of a VirtualService have, and services that one of these covers and for which no VirtualService is more
// specific. It is the same for each host of the VirtualService, which may have thousands: until the step is done, it is kept.
func (s *scope) portsOf(vs *model.VirtualService, e *egress) []uint32 {
	if ports, known := s.ports[servedBy{vs, e}]; known {
		return ports
	}
	ports := map[uint32]bool{}
	add := func(name string) {
		h := s.hosts.Get(name)
		if h == nil || h.Service == nil || !e.Has(h.Service, name) {
			return
		}
		for p := range h.Ports() {
			if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || input.IsHTTP(p.GetProtocol()) {
				ports[p.GetNumber()] = true
			}
		}
	}
	wildcards := false
	for _, name := range vs.Spec.GetHosts() {
		if input.IsWildcard(name) {
			wildcards = true
		} else {
			add(name)
		}
	}
	if wildcards {
		s.hosts.Names(func(name string) { // once, however many wildcards there are
			if s.hosts.VirtualServiceFor(name, e.Imports) == vs {
				add(name)
			}
		})
	}
	s.ports[servedBy{vs, e}] = slices.Sorted(maps.Keys(ports))
	return s.ports[servedBy{vs, e}]
}

// overlapped are the ports of services that a wildcard covers, or that cover it.
func (s *scope) overlapped(name string, e *egress) map[uint32]bool {
	ports := map[uint32]bool{}
	serves := func(name string) {
		if other := s.hosts.Get(name); other != nil && other.Service != nil && e.Has(other.Service, name) {
			for p := range other.Ports() {
				ports[p.GetNumber()] = true
			}
		}
	}
	s.hosts.Covered(name, serves)
	for pattern := range model.Wildcards(name) {
		serves(pattern)
	}
	return ports
}

// namesOf are the names that a host is called by: itself, its short names as a Kubernetes service, itself with the dot by which DNS marks a name as
// absolute (RFC 1034 section 3.1; clients send it as it is).
func (s *scope) namesOf(name string) []string {
	out := append([]string{name}, host.ShortNames(name, s.key.Namespace, s.key.Domain)...)
	if _, err := netip.ParseAddr(name); err != nil {
		out = append(out, name+".")
	}
	return out
}

// domainsOf are the names that a host of a service would have at a port: namesOf, those of its aliases, its virtual addresses; of a headless service
// also the names of its pods.
func (s *scope) domainsOf(h *host.Host, port uint32) []string {
	name, svc := h.Name, h.Service
	out := s.namesOf(name)
	if svc.Spec.GetHeadless() && svc.Key.Kind == model.KindService {
		for _, d := range slices.Clone(out) {
			out = append(out, "*."+d)
		}
	}
	for _, alias := range s.hosts.Aliases(name) {
		out = append(out, s.namesOf(alias)...)
	}
	s.hosts.AddressesAt(h, port, func(addresses []string) {
		for _, a := range addresses {
			ip, ok := single(a)
			if !ok || s.key.Listening.Families == xds.IPv6Only && !view.IPv6.Has(ip) {
				continue
			}
			if strings.Contains(ip, ":") {
				ip = "[" + ip + "]"
			}
			if !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	})
	return out
}

// rivals calls visit with every host that might have a domain too.
func (s *scope) rivals(domain string, visit func(host string)) {
	address := strings.Trim(domain, "[]")
	for h := range s.in.Index.AtAddress(address) {
		visit(h)
	}
	domain = strings.TrimSuffix(domain, ".") // see domainsOf
	for i, name := range [...]string{domain, strings.TrimPrefix(domain, "*.")} {
		if i == 1 && name == domain {
			break
		}
		s.hostsNamed(name, visit)
		host.LongNames(name, s.key.Namespace, s.key.Domain, func(long string) { s.hostsNamed(long, visit) })
	}
}

// hostsNamed calls visit with the host of a name, and with those that it is an alias of, whether or not the scope sees it as that.
func (s *scope) hostsNamed(name string, visit func(host string)) {
	visit(name)
	for of := range s.in.AliasTargets(name) {
		visit(of)
	}
}

// loses says whether another host of the route configuration has the domain: an alias that a VirtualService names has its own names, whatever it is
// another name of; else who precedes has it. reported: that is a problem of the object that makes the entry.
func (rs *routeTable) loses(rc *routeConfig, en *entry, domain string) (lost, reported bool) {
	lost, reported = rc.taken[domain], true
	key, own := routeKey{kind: rc.kind, port: en.port}, rs.isAlias(en.host)
	rs.rivals(key.withoutPort(domain), func(host string) {
		other := rc.entries.Get(key.entry(host))
		if lost || other == nil || host == en.host || !slices.Contains(other.domains.All(), domain) {
			return
		}
		alias := rs.isAlias(host)
		lost, reported = alias && !own || alias == own && rs.precedes(other, en), !alias
	})
	return lost, reported
}

// precedes says which of two hosts has a domain that both would have: one with a service, whose order host.Precedes knows; of two hosts of one
// service, or of none, the first by name.
func (s *scope) precedes(a, b *entry) bool {
	switch {
	case (a.service == nil) != (b.service == nil):
		return a.service != nil
	case a.service == nil || a.service.Key == b.service.Key:
		return a.host < b.host
	}
	return host.Precedes(a.service, b.service, s.key.Namespace)
}

func (s *scope) isAlias(name string) bool {
	h := s.hosts.Get(name)
	return h != nil && h.Alias() != nil
}

// specOf decides a virtual host for proxies with certain inputs, and the hosts that they see: its domains, and what the destinations of its rules mean
// here. Where no rule is for them, the host is left to its service. False: no name is left for it, or nothing answers.
func (rs *routeTable) specOf(rc *routeConfig, en *entry, as host.Seen, found *[]input.Problem) (vhost.Spec, bool) {
	var domains []string
	for _, c := range en.domains.All() {
		if lost, reported := rs.loses(rc, en, c); lost && !en.alone {
			if reported {
				*found = append(*found, input.Warning(rs.blame(en), problem.Duplicate, "spec.hosts", "name "+c+" at port "+rc.name+" belongs to another host"))
			}
			continue
		}
		domains = append(domains, c)
	}
	if len(domains) == 0 {
		return vhost.Spec{}, false
	}
	spec := vhost.Spec{Host: en.host, Port: en.port, Domains: strs.List(domains...), Mesh: rs.in.Meshes.VirtualHost, Caps: rs.anonymous(), Proxy: rs.key.Routes}
	name := xds.VirtualHost(en.host, en.port)
	spec.Patches = rs.patches.Matching(func(p model.Patch) bool { return patch.VirtualHostMatches(p, rs.patched(rc), name) })
	return spec, rs.hosts.Routes(&spec, en.vs, as, found)
}

// blame is the object that makes an entry.
func (s *scope) blame(en *entry) model.Key {
	if h := s.hosts.Get(en.host); h != nil && h.Service != nil {
		return h.Service.Key
	}
	if en.vs != nil {
		return en.vs.Key
	}
	return model.Key{}
}
