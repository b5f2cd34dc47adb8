package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The HTTP proxy is a listener at loopback that applications use as an HTTP proxy (MeshConfig proxyHttpPort). It uses
// the route configuration http_proxy, which contains a virtual host for each HTTP port of each host. The names in
// requests include the port of the host, so domains include the port. For port 80 there is a domain without the port
// too. istiod has the same domains, but makes Envoy remove the port from requests, so only port 80 is reachable there.

// proxyPort returns the port of the HTTP proxy, or 0 if the mesh has no HTTP proxy.
func (s *scope) proxyPort() uint32 {
	return uint32(max(s.in.Mesh.Spec.GetProxyHttpPort(), 0))
}

// proxyEgress returns the egress listener whose hosts are reachable through the HTTP proxy. It is the first egress
// listener without a port. It is nil without such a listener or without an HTTP proxy.
func (s *scope) proxyEgress() *egress {
	if s.proxyPort() == 0 {
		return nil
	}
	return s.egressFor(0)
}

// domains returns the domains for some names of a host. For the HTTP proxy the port is appended to each name, and port
// 80 has the names without the port too. For all other route configurations the domains equal the names.
func (k routeKey) domains(names []string) (out []string) {
	if k.kind != ofProxy {
		return names
	}
	for _, name := range names {
		if k.port == withoutService {
			out = append(out, name)
		}
		out = append(out, xds.VirtualHost(name, k.port))
	}
	return out
}

// proxyTraffic returns the traffic that the HTTP proxy's listener has without any host.
func (s *scope) proxyTraffic() traffic {
	t := traffic{port: s.proxyPort(), direct: true, http: true, route: routeKey{kind: ofProxy}}
	return t.at(s.key.Listening.Families.Loopback())
}

// addProxyListener adds the listener of the HTTP proxy, if the mesh has one, for the life of the scope.
func (ls *listeners) addProxyListener() {
	if ls.proxyPort() > 0 {
		ls.count("", ls.proxyTraffic(), 1)
	}
}

// proxyFeaturesOf returns the traffic that adds the features of a host to the HTTP proxy's listener. The result is
// false if the host needs no features.
func (s *scope) proxyFeaturesOf(h *host.Host) (traffic, bool) {
	e := s.proxyEgress()
	if e == nil || !e.Has(h.Service, h.Name) {
		return traffic{}, false
	}
	t := s.proxyTraffic()
	t.from = h.Service
	for p := range h.Ports() {
		if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || p.GetProtocol().IsHTTP() {
			t.features.grpcWeb = t.features.grpcWeb || p.GetProtocol() == model.Protocol_PROTOCOL_GRPC_WEB
			t.features.dynamic = host.Dynamic(h.Service)
		}
	}
	return t, t.features != features{}
}
