package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The HTTP proxy is a listener on the loopback address, which applications use as an HTTP proxy (MeshConfig
// proxyHttpPort). Its route configuration http_proxy contains a virtual host for each HTTP port of each host. The names
// in requests include the port of the host, so domains include the port. For port 80 there are also domains without the
// port. istiod has the same domains, but makes Envoy remove the port from requests, so only port 80 is reachable there.

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

// domains returns the domains for the given names of a host. For the HTTP proxy the port is appended to each name. For
// its port 80, the names without the port are included too. For all other route configurations the domains equal the
// names.
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

// proxyTraffic returns the traffic that the HTTP proxy's listener has even without any host.
func (s *scope) proxyTraffic() traffic {
	t := traffic{port: s.proxyPort(), direct: true, http: true, route: routeKey{kind: ofProxy}}
	return t.at(s.key.Listening.Families.Loopback())
}

// addProxyListener adds the listener of the HTTP proxy, if the mesh has an HTTP proxy. The listener is never removed.
func (ls *listeners) addProxyListener() {
	if ls.proxyPort() > 0 {
		ls.count("", ls.proxyTraffic(), 1)
	}
}

// proxyFeaturesOf returns the traffic that adds the optional features of a host to the HTTP proxy's listener. The
// result is false if the host needs no such features there.
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
