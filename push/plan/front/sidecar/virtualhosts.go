package sidecar

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// withoutService is the port at which a host that a VirtualService lists gets a virtual host, even without a service.
const withoutService = 80

// manyDomains is a number of domains. After a virtual host with more domains, virtualHostsOf calls the function yield.
const manyDomains = 100

// virtualHostsOf maps route configurations to the virtual hosts of a host. The host has a virtual host for each of its
// ports with HTTP or a detected protocol. A host that a VirtualService lists also has virtual hosts at the ports of
// portsNamed. An egress listener counts only if it imports the host or, at the ports of portsNamed, a host of the
// VirtualService. The result is empty for the host *. It calls the function yield between ports of a host with many
// names.
func (s *scope) virtualHostsOf(h *host.Host, yield func()) map[routeKey]routes.VirtualHost {
	out := map[routeKey]routes.VirtualHost{}
	if h.Name == "*" {
		return out // a virtual host with this domain would match every name
	}
	add := func(key routeKey, port uint32, vs *model.VirtualService, domains []string) {
		if _, dup := out[key]; dup {
			return
		}
		vh := routes.VirtualHost{ID: key.id(h.Name), Host: h.Name, Port: port, Domains: strs.List(domains...),
			Keeps: key.kind == ofHost, Service: h.Service,
			Own: h.Service != nil && h.Service.Key.Namespace == s.key.Namespace}
		if vs != nil {
			vh.Rules = host.RulesFor(vs, virtualservice.Mesh)
			vh.Reads = strs.List(virtualservice.RequestLabelKeys(vs, virtualservice.Mesh)...)
		}
		if out[key] = vh; len(domains) > manyDomains {
			yield()
		}
	}
	if h.Service != nil {
		s.served(h, func(key routeKey, port uint32, e *egress) {
			domains := []string{"*"}
			if key.kind != ofHost {
				domains = key.domains(s.domainsOf(h, port))
			}
			add(key, port, s.hosts.VirtualServiceFor(h.Name, virtualservice.Mesh, e.Imports), domains)
		})
	}
	for _, e := range s.egress {
		if vs := s.hosts.VirtualServiceNaming(h.Name, virtualservice.Mesh, e.Imports); vs != nil {
			domains := []string{h.Name}
			if h.Alias() != nil {
				domains = s.namesOf(h.Name)
			}
			for _, port := range s.portsNamed(h, vs, e) {
				add(keyOf(e, port), port, vs, domains)
				if e == s.proxyEgress() {
					key := routeKey{kind: ofProxy, port: port}
					add(key, port, vs, key.domains(domains))
				}
			}
		}
	}
	return out
}

// served calls the function add with each route configuration in which a host has a virtual host for one of its own
// ports.
func (s *scope) served(h *host.Host, add func(key routeKey, port uint32, e *egress)) {
	for p := range h.Ports() {
		sniff := p.GetProtocol() == model.Protocol_PROTOCOL_AUTO
		if !sniff && !p.GetProtocol().IsHTTP() {
			continue
		}
		if e := s.egressFor(p.GetNumber()); e != nil && e.Has(h.Service, h.Name) {
			add(keyOf(e, p.GetNumber()), p.GetNumber(), e)
		}
		if e := s.proxyEgress(); e != nil && e.Has(h.Service, h.Name) {
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

// portsNamed returns the ports at which a host has a virtual host because a VirtualService lists the host. Ports of the
// host's own services are left out, and so are ports of egress listeners other than e. The remaining ports are:
//   - port 80
//   - the HTTP ports of an ExternalName Service that makes the host an alias
//   - the ports of portsOf
//
// A wildcard has no virtual host at the ports of overlapping services, because its rules apply to the virtual hosts of
// these services (istio: pilot/pkg/networking/core/route, buildSidecarVirtualHostsForVirtualService,
// separateVSHostsAndServices).
func (s *scope) portsNamed(h *host.Host, vs *model.VirtualService, e *egress) (ports []uint32) {
	var overlapped map[uint32]bool
	if input.IsWildcard(h.Name) {
		overlapped = s.overlapped(h.Name, e)
	}
	add := func(port uint32) {
		own := h.At(port) != nil
		if !own && s.egressFor(port) == e && !slices.Contains(ports, port) && !overlapped[port] {
			ports = append(ports, port)
		}
	}
	add(withoutService)
	if alias := h.Alias(); alias != nil {
		for _, p := range alias.Spec.GetPorts() {
			if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || p.GetProtocol().IsHTTP() {
				add(p.GetNumber())
			}
		}
	}
	for _, port := range s.portsOf(vs, e) {
		add(port)
	}
	return ports
}

// servedBy is the key of scope.ports.
type servedBy struct {
	vs *model.VirtualService
	e  *egress
}

// portsOf returns the HTTP ports of the hosts of a VirtualService, sorted. Hosts that e does not import are ignored.
// Hosts that a wildcard of the VirtualService covers are included, unless another VirtualService decides their routes.
// A VirtualService may have thousands of hosts with the same result, so the result is cached until the step is done.
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
			if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || p.GetProtocol().IsHTTP() {
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
		s.hosts.Names(func(name string) { // one pass for all wildcards
			if s.hosts.VirtualServiceFor(name, virtualservice.Mesh, e.Imports) == vs {
				add(name)
			}
		})
	}
	s.ports[servedBy{vs, e}] = slices.Sorted(maps.Keys(ports))
	return s.ports[servedBy{vs, e}]
}

// overlapped returns the ports of the services that e imports and that overlap a wildcard. A service overlaps a
// wildcard if the wildcard covers a host of the service, or if a host of the service covers the wildcard.
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
