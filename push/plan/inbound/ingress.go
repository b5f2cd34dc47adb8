package inbound

import (
	"fmt"
	"net/netip"
	"strings"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// ingress reads one ingress listener of the Sidecar
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener). Its virtual host, and what spans say, have its own number and
// the Sidecar's name, as with Istio's control plane, whatever service is behind it.
func (wl *Workload) ingress(i int, l *networkingv1.IstioIngressListener) (port, bool) {
	bad := func(field, format string, args ...any) {
		wl.found = append(wl.found, input.Problem{Key: wl.sidecar.Key, Field: fmt.Sprintf("spec.ingress[%d].%s", i, field), Code: problem.Invalid,
			Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
	}
	protocol, ok := input.ParseProtocol(l.GetPort().GetProtocol())
	if !ok {
		bad("port.protocol", "%q is not supported; the listener is left out", l.GetPort().GetProtocol())
		return port{}, false
	}
	number := l.GetPort().GetNumber()
	if number == 0 || number > 65535 {
		bad("port.number", "%d: want 1 to 65535; the listener is left out", number)
		return port{}, false
	}
	target, err := targetOf(l.GetDefaultEndpoint(), wl.key.Addresses.All())
	if err != nil {
		bad("defaultEndpoint", "%v; the listener is left out", err)
		return port{}, false
	}
	in := listener.InboundPort{Port: number, Protocol: protocol, Host: wl.sidecar.Key.Name + "." + wl.sidecar.Key.Namespace, ServicePort: number}
	in.Ended, in.Protocol = wl.endedTLS(i, l, in)
	p := wl.port(in, wl.behind(number, target), i, target)
	if l.GetCaptureMode() == networkingv1.CaptureMode_NONE || wl.key.Mode == view.None {
		if p.bind = l.GetBind(); p.bind == "" {
			p.bind, p.also = wl.ownAddresses()
		}
	}
	return p, true
}

// ownAddresses are where ingress listeners are bound that say no address: the workload's own, the first of each family, so that the application may have
// the port at loopback; all, where it has none.
func (wl *Workload) ownAddresses() (first string, others []string) {
	has := map[bool]bool{}
	for _, text := range wl.key.Addresses.All() {
		if a, err := netip.ParseAddr(text); err == nil && a.IsGlobalUnicast() && !has[a.Is4()] {
			has[a.Is4()] = true
			others = append(others, text)
		}
	}
	if len(others) == 0 {
		return wl.key.Listening.Families.Wildcard(), nil
	}
	return others[0], others[1:]
}

// behind finds the service and its port whose target is the ingress port or what the ingress listener passes on to.
func (wl *Workload) behind(number uint32, target string) served {
	inner := number
	if a, err := netip.ParseAddrPort(target); err == nil {
		inner = uint32(a.Port())
	}
	for _, n := range []uint32{number, inner} {
		for _, svc := range wl.services {
			for _, p := range wl.service(svc) {
				if p.Port == n {
					return served{svc, p.Host, p.ServicePort}
				}
			}
		}
	}
	return served{}
}

// targetOf reads a default endpoint: a loopback address and port, 0.0.0.0:port or [::]:port (the workload itself: its first
// address of that family, loopback where it has none), unix:///path, or nothing (where the connection was going to).
func targetOf(endpoint string, addresses []string) (string, error) {
	if endpoint == "" || strings.HasPrefix(endpoint, "unix://") {
		return endpoint, nil
	}
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil || at.Port() == 0 {
		return "", fmt.Errorf("%q: want an IP address and a port, or unix:// and a path", endpoint)
	}
	if !at.Addr().IsUnspecified() {
		return endpoint, nil
	}
	own := netip.IPv6Loopback()
	if at.Addr().Is4() {
		own = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.Unmap().Is4() == at.Addr().Is4() {
			own = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(own, at.Port()).String(), nil
}

// inTLS are the protocols within TLS, where it ends.
var inTLS = map[model.Protocol]model.Protocol{model.Protocol_PROTOCOL_HTTPS: model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_TLS: model.Protocol_PROTOCOL_TCP}

// defaultVersions are versions of TLS as MeshConfig has them, whose numbers are others.
var defaultVersions = map[meshv1.MeshConfig_TLSConfig_TLSProtocol]networkingv1.ServerTLSSettings_TLSProtocol{
	meshv1.MeshConfig_TLSConfig_TLSV1_2: networkingv1.ServerTLSSettings_TLSV1_2, meshv1.MeshConfig_TLSConfig_TLSV1_3: networkingv1.ServerTLSSettings_TLSV1_3,
}

// endedTLS is the TLS that an ingress listener ends, and the protocol within it. It stands back behind mTLS of the mesh, as with Istio's control plane:
// only a port that a PeerAuthentication takes out of it ends other TLS. What the listener does not say MeshConfig tlsDefaults does.
func (wl *Workload) endedTLS(i int, l *networkingv1.IstioIngressListener, p listener.InboundPort) (listener.ServerTLS, model.Protocol) {
	tls := l.GetTls()
	if tls.GetMode() == networkingv1.ServerTLSSettings_PASSTHROUGH {
		return listener.ServerTLS{}, p.Protocol
	}
	if wl.stated(p.Port) != listener.Plain {
		wl.found = append(wl.found, input.Warning(wl.sidecar.Key, problem.NoEffect, fmt.Sprintf("spec.ingress[%d].tls", i),
			fmt.Sprintf("port %d takes mTLS of the mesh, and ends no other TLS: want a PeerAuthentication with mode DISABLE for it", p.Port)))
		return listener.ServerTLS{}, p.Protocol
	}
	defaults := wl.in.Mesh.Spec.GetTlsDefaults()
	out := listener.ServerTLS{Mode: tls.GetMode(), Certificate: tls.GetServerCertificate(), Key: tls.GetPrivateKey(),
		Ciphers: strs.List(defaults.GetCipherSuites()...), Curves: strs.List(defaults.GetEcdhCurves()...),
		Least: defaultVersions[defaults.GetMinProtocolVersion()], Most: tls.GetMaxProtocolVersion()}
	if tls.GetMode() != networkingv1.ServerTLSSettings_SIMPLE {
		out.Authorities, out.Revoked = tls.GetCaCertificates(), tls.GetCaCrl()
	}
	if len(tls.GetCipherSuites()) > 0 {
		out.Ciphers = strs.List(tls.GetCipherSuites()...)
	}
	if tls.GetMinProtocolVersion() != networkingv1.ServerTLSSettings_TLS_AUTO {
		out.Least = tls.GetMinProtocolVersion()
	}
	if out.Most != networkingv1.ServerTLSSettings_TLS_AUTO {
		out.Least = min(out.Least, out.Most) // what the listener says comes before the default
	}
	return out, inTLS[p.Protocol]
}

var strs intern.Table[string]
