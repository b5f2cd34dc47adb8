package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/xds"
)

// ends says whether there is TLS to end.
func (s ServerTLS) ends() bool { return s != ServerTLS{} }

// asksClients says whether clients are asked for a certificate.
func (s ServerTLS) asksClients() bool {
	return s.Mode == networkingv1.ServerTLSSettings_MUTUAL || s.Mode == networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL
}

// inspectsTLS says whether the TLS inspector has to look at a port.
func (c Common) inspectsTLS(p InboundPort) bool {
	return p.MTLS.mesh() || p.Ended.ends() && c.Caps.Has(xds.CapTLSInspector)
}

// serverTLS ends TLS with the certificate of files, which the proxy's agent reads where it does that (xds.CapFileSecrets), and reads again as they
// change, or else Envoy itself.
func (c Common) serverTLS(s ServerTLS) *corev3.TransportSocket {
	var params *tlsv3.TlsParameters
	if s.Ciphers.Len()+s.Curves.Len()+int(s.Least)+int(s.Most) > 0 {
		params = &tlsv3.TlsParameters{ // versions have the same numbers as Envoy's
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(s.Least), TlsMaximumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(s.Most),
			CipherSuites: s.Ciphers.All(), EcdhCurves: s.Curves.All(),
		}
	}
	clients := &tlsv3.CertificateValidationContext{}
	revoked := ""
	switch {
	case c.Caps.Has(xds.CapFileSecrets | xds.CapFileLists):
		revoked = s.Revoked
	case s.Revoked != "":
		clients.Crl = file(s.Revoked)
	}
	var own, authorities *tlsv3.SdsSecretConfig
	if c.Caps.Has(xds.CapFileSecrets) {
		own = identity.OfAgent(xds.FileCertificate(s.Certificate, s.Key))
		if s.asksClients() {
			authorities = identity.OfAgent(xds.FileAuthorities(s.Authorities, revoked))
		}
	}
	common := identity.Secrets(params, own, authorities, clients)
	common.AlpnProtocols = httpReply
	if own == nil {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: file(s.Certificate), PrivateKey: file(s.Key)}}
		if s.asksClients() {
			clients.TrustedCa = file(s.Authorities)
			common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: clients}
		}
	}
	return &corev3.TransportSocket{Name: tlsSocket, ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: xds.Any(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: common, RequireClientCertificate: wrapperspb.Bool(s.Mode == networkingv1.ServerTLSSettings_MUTUAL),
		}),
	}}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
