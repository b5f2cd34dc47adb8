package inbound

import (
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// ingress plans the port of one ingress listener of the Sidecar
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#IstioIngressListener). As in istiod, the virtual
// host and the spans of the port name the listener's port and the Sidecar, and no service. If the listener's capture
// mode or the proxy's mode is NONE, the port gets a listener of its own. An invalid listener is left out and reported.
func (wl *Workload) ingress(i int, l *networkingv1.IstioIngressListener) (port, bool) {
	bad := func(field, format string, args ...any) {
		wl.found = append(wl.found, input.Problem{Key: wl.sidecar.Key, Field: fmt.Sprintf("spec.ingress[%d].%s", i, field), Code: problem.Invalid,
			Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
	}
	protocol, ok := model.ParseProtocol(l.GetPort().GetProtocol())
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
	in := listener.InboundPort{Port: number, Protocol: protocol, ServicePort: number,
		Host: wl.sidecar.Key.Name + "." + wl.sidecar.Key.Namespace}
	in.Ended, in.Protocol = wl.terminatedTLS(i, l, in)
	p := wl.port(in, wl.serviceBehind(number, target), i, target)
	if l.GetCaptureMode() == networkingv1.CaptureMode_NONE || wl.key.Mode == view.None {
		if p.bind = l.GetBind(); p.bind == "" {
			p.bind, p.also = wl.ownAddresses()
		}
	}
	return p, true
}

// ownAddresses returns the addresses for an ingress listener without a bind address. They are the workload's first
// global unicast address of each family. So the application can use the same port at loopback. Without such an address,
// the result first is the wildcard address.
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

// serviceBehind returns the service port whose target port is the parameter number, the port of the ingress listener.
// If there is no such service port, the port in the argument target is used in place of number. If no service port has
// that target port either, the result is the zero value.
func (wl *Workload) serviceBehind(number uint32, target string) served {
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

// targetOf validates a default endpoint and returns the address to connect to. The argument endpoint may be an IP
// address with a port, unix:///path, or empty for the original destination. In place of the address 0.0.0.0 or ::, the
// result has the first of the workload's addresses of that family, or else the loopback address. For any other
// endpoint, the error quotes the endpoint.
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

// protocolWithin maps each protocol over TLS to the protocol inside TLS, for ports that terminate TLS.
var protocolWithin = map[model.Protocol]model.Protocol{
	model.Protocol_PROTOCOL_HTTPS: model.Protocol_PROTOCOL_HTTP,
	model.Protocol_PROTOCOL_TLS:   model.Protocol_PROTOCOL_TCP,
}

// terminatedTLS returns the TLS settings of an ingress listener, and the protocol inside TLS. If the listener
// terminates no TLS, it returns the zero settings and the protocol of p. As in istiod, the mesh's mTLS takes
// precedence. A port terminates other TLS only if a PeerAuthentication disables mTLS for the port. MeshConfig
// tlsDefaults fills in missing settings.
func (wl *Workload) terminatedTLS(i int, l *networkingv1.IstioIngressListener, p listener.InboundPort) (
	listener.ServerTLS, model.Protocol) {
	tls := l.GetTls()
	if tls.GetMode() == networkingv1.ServerTLSSettings_PASSTHROUGH {
		return listener.ServerTLS{}, p.Protocol
	}
	if wl.policyMode(p.Port) != listener.Plain {
		wl.found = append(wl.found, input.Warning(wl.sidecar.Key, problem.NoEffect, fmt.Sprintf("spec.ingress[%d].tls", i),
			fmt.Sprintf("has no effect: port %d terminates the mesh's mTLS; to terminate this TLS, add a PeerAuthentication with "+
				"mode DISABLE for the port", p.Port)))
		return listener.ServerTLS{}, p.Protocol
	}
	out := input.ServerTLS(tls, wl.in.Mesh.Spec)
	out.Certificate, out.Key = tls.GetServerCertificate(), tls.GetPrivateKey()
	if tls.GetMode() != networkingv1.ServerTLSSettings_SIMPLE {
		out.Authorities, out.Revoked = tls.GetCaCertificates(), tls.GetCaCrl()
	}
	return out, protocolWithin[p.Protocol]
}

var strs intern.Table[string]
