package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The HTTP proxy: a listener at loopback to which applications send requests as to a proxy (MeshConfig
// proxyHttpPort). What it routes by is the route configuration http_proxy, of which each HTTP port of each host has a
// virtual host. Requests name the port that they are for, so names are compared with it; that of port 80 may be left
// out. Istio's control plane sends the same names and has Envoy take the port off requests, by which all ports but 80
// are out of reach.

// proxyPort is the port of the HTTP proxy; 0: there is none.
func (s *scope) proxyPort() uint32 {
	return uint32(max(s.in.Mesh.Spec.GetProxyHttpPort(), 0))
}

// proxied is the egress listener whose hosts the HTTP proxy knows: the first without a port. Nil: there is none, or
// no HTTP proxy.
func (s *scope) proxied() *egress {
	if s.proxyPort() == 0 {
		return nil
	}
	return s.routed(0)
}

// domains are names of a host as the route configuration has them.
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

// proxyTraffic is what the HTTP proxy has at its listener, whatever hosts there are.
func (s *scope) proxyTraffic() traffic {
	t := traffic{port: s.proxyPort(), direct: true, http: true, route: routeKey{kind: ofProxy}}
	return t.at(s.key.Listening.Families.Loopback())
}

// bringProxy makes the listener of the HTTP proxy, which stands while the scope does.
func (ls *listeners) bringProxy() {
	if ls.proxyPort() > 0 {
		ls.bring("", ls.proxyTraffic(), 1)
	}
}

// wantedOfProxy is what a host's HTTP takes of the HTTP proxy's listener beside what all have; false: nothing.
func (s *scope) wantedOfProxy(h *host.Host) (traffic, bool) {
	e := s.proxied()
	if e == nil || !e.Has(h.Service, h.Name) {
		return traffic{}, false
	}
	t := s.proxyTraffic()
	t.from = h.Service
	for p := range h.Ports() {
		if p.GetProtocol() == model.Protocol_PROTOCOL_AUTO || input.IsHTTP(p.GetProtocol()) {
			t.wants.grpcWeb = t.wants.grpcWeb || p.GetProtocol() == model.Protocol_PROTOCOL_GRPC_WEB
			t.wants.dynamic = host.Dynamic(h.Service)
		}
	}
	return t, t.wants != wants{}
}
