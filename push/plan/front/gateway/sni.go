package gateway

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// meshProtocols lists the ALPN protocols of the mesh's mTLS (istio: pilot/pkg/networking/core/gateway.go,
// buildGatewayListenerTLSContext).
var meshProtocols = strs.List("istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2")

var targets intern.Table[listener.Target]

// passesBySNI reports whether a Gateway of the scope has a server with mode AUTO_PASSTHROUGH.
func passesBySNI(in *input.Input, key view.Scope) bool {
	return slices.ContainsFunc(key.Gateways.All(), func(key model.Key) bool {
		r, ok := in.Get(key)
		return ok && slices.ContainsFunc(r.(*model.Gateway).Spec.GetServers(), func(s *networkingv1.Server) bool {
			return s.GetTls().GetMode() == networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH
		})
	})
}

// passBySNI plans the chains by SNI of one host again. An AUTO_PASSTHROUGH server has such a chain for each port and
// subset of the host that other networks may reach. The chains of other hosts stay unchanged.
func (f *Front) passBySNI(name string) {
	if !f.hosts.Form().BySNI {
		return
	}
	h := f.hosts.Get(name)
	for _, s := range f.sockets {
		now := f.chainsBySNI(s, h)
		if slices.Equal(now, s.bySNI[name]) {
			continue
		}
		s.stale = true
		if len(now) == 0 {
			delete(s.bySNI, name)
			continue
		}
		if s.bySNI == nil {
			s.bySNI = map[string][]*xds.Fragment{}
		}
		s.bySNI[name] = now
	}
}

// chainsBySNI builds the chains by SNI of a host at a listener. The result is nil if the listener has no
// AUTO_PASSTHROUGH server for the host.
func (f *Front) chainsBySNI(s *socket, h *host.Host) (out []*xds.Fragment) {
	if h == nil || h.Service == nil || s.quic || !slices.ContainsFunc(s.TLS, func(server gateways.Server) bool {
		return server.Auto() && server.Allows(h.Service.Key.Namespace, h.Name)
	}) {
		return nil
	}
	common := f.common(s)
	common.Extensions = listener.Common{}.Extensions // no extensions, because the gateway does not terminate the mTLS
	for port, svc := range h.Ports() {
		if !f.hosts.PassedBySNI(svc, port) || f.hosts.Returns(h.Name, port.GetNumber()) {
			continue
		}
		for _, subset := range append([]string{""}, h.Subsets()...) {
			if !f.hosts.Reached(h, svc, port.GetNumber(), subset) {
				continue
			}
			cluster := xds.SNICluster(port.GetNumber(), subset, h.Name)
			chain := listener.ServerChain{Common: common, Port: s.Port, Names: strs.List(cluster), Protocols: meshProtocols,
				TCP: listener.Chain{Targets: targets.List(listener.Target{Cluster: cluster}), StatPrefix: cluster, Protocol: model.Protocol_PROTOCOL_TLS}}
			if fragment, err := f.In.Pool.Fragment(chain); err == nil { // the build of such a chain cannot fail
				out = append(out, fragment)
			}
		}
	}
	return out
}
