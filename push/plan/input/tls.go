package input

import (
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/store/intern"
)

var tlsTexts intern.Table[string]

// defaultVersions maps the TLS versions of MeshConfig to those of Gateway, whose enum has other numbers.
var defaultVersions = map[meshv1.MeshConfig_TLSConfig_TLSProtocol]networkingv1.ServerTLSSettings_TLSProtocol{
	meshv1.MeshConfig_TLSConfig_TLSV1_2: networkingv1.ServerTLSSettings_TLSV1_2,
	meshv1.MeshConfig_TLSConfig_TLSV1_3: networkingv1.ServerTLSSettings_TLSV1_3,
}

// ServerTLS returns the mode, versions, cipher suites and curves of a server's TLS. If the server states no minimum
// version or no cipher suites, those of MeshConfig's tlsDefaults are used. Curves always come from tlsDefaults. If the
// default minimum version is above the server's maximum version, the maximum version is also the minimum. Other fields
// of the result are zero. Both arguments may be nil.
func ServerTLS(tls *networkingv1.ServerTLSSettings, mesh *meshv1.MeshConfig) listener.ServerTLS {
	defaults := mesh.GetTlsDefaults()
	out := listener.ServerTLS{Mode: tls.GetMode(),
		Ciphers: tlsTexts.List(defaults.GetCipherSuites()...), Curves: tlsTexts.List(defaults.GetEcdhCurves()...),
		Least: defaultVersions[defaults.GetMinProtocolVersion()], Most: tls.GetMaxProtocolVersion()}
	if len(tls.GetCipherSuites()) > 0 {
		out.Ciphers = tlsTexts.List(tls.GetCipherSuites()...)
	}
	switch {
	case tls.GetMinProtocolVersion() != networkingv1.ServerTLSSettings_TLS_AUTO:
		out.Least = tls.GetMinProtocolVersion()
	case out.Most != networkingv1.ServerTLSSettings_TLS_AUTO:
		out.Least = min(out.Least, out.Most)
	}
	return out
}
