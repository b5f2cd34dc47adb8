package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/xds"
)

// terminates reports whether the proxy terminates TLS. This is the case if the settings are not zero.
func (s ServerTLS) terminates() bool { return s != ServerTLS{} }

// NamesFiles reports whether the settings name files of the proxy: certificates, CAs or revocation lists. Names of key
// files alone do not count.
func (s ServerTLS) NamesFiles() bool {
	return s.Certificate+s.Certificate2+s.Authorities+s.Revoked != ""
}

// requestsClientCertificate reports whether the proxy requests a certificate from clients.
func (s ServerTLS) requestsClientCertificate() bool {
	return s.terminates() && s.Mode != networkingv1.ServerTLSSettings_SIMPLE
}

// requiresClientCertificate reports whether connections without a client certificate are refused.
func (s ServerTLS) requiresClientCertificate() bool {
	return s.requestsClientCertificate() && s.Mode != networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL
}

// needsTLSInspector reports whether a port needs the TLS inspector, because the proxy terminates TLS at the port. For
// TLS with the workload's own certificates (Ended), the result is false if the proxy lacks the inspector.
func (c Common) needsTLSInspector(p InboundPort) bool {
	return p.MTLS.terminatesMeshTLS() || p.Ended.terminates() && c.Caps.Has(xds.CapTLSInspector)
}

// serverTLS returns the TLS context of a server. The ALPN protocols are those that s states. If s states no ALPN
// protocols, they are those in alpn. Certificates come over SDS or from files. If the proxy's agent supports files
// (xds.CapFileSecrets), the agent reads the files, and reads them again after each change. If the agent does not
// support files, Envoy reads them once. If the proxy requests no client certificates, the context states no
// verification, because Envoy refuses accepted names without authorities.
func (c Common) serverTLS(s ServerTLS, alpn []string) *tlsv3.DownstreamTlsContext {
	if s.ALPN.Len() > 0 {
		alpn = s.ALPN.All()
	}
	var common *tlsv3.CommonTlsContext
	if s.Mode == networkingv1.ServerTLSSettings_ISTIO_MUTUAL {
		common = identity.Context(alpn, s.clients())
		common.TlsParams = s.params()
	} else {
		common = c.ownTLS(s)
		common.AlpnProtocols = alpn
	}
	return &tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: wrapperspb.Bool(s.requiresClientCertificate())}
}

// params returns the TLS versions, ciphers and curves, or nil for Envoy's defaults.
func (s ServerTLS) params() *tlsv3.TlsParameters {
	if s.Ciphers.Len()+s.Curves.Len()+int(s.Least)+int(s.Most) == 0 {
		return nil
	}
	return &tlsv3.TlsParameters{ // Istio and Envoy number the TLS versions equally
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(s.Least), TlsMaximumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(s.Most),
		CipherSuites: s.Ciphers.All(), EcdhCurves: s.Curves.All(),
	}
}

// readsFiles reports whether Envoy reads a file of the settings, because the proxy's agent does not serve the file.
func (c Common) readsFiles(s ServerTLS) bool {
	asks, byAgent := s.requestsClientCertificate(), c.Caps.Has(xds.CapFileSecrets)
	own := s.Secrets.Len() == 0 || asks && s.Trust == Secret{}
	lists := asks && s.Revoked != "" && (s.Authorities == "" || !c.Caps.Has(xds.CapFileLists))
	return own && !byAgent || lists
}

// ownTLS returns the TLS context of a server whose certificates are not the mesh's.
func (c Common) ownTLS(s ServerTLS) *tlsv3.CommonTlsContext {
	clients, revoked := s.clients(), ""
	switch {
	case s.Authorities != "" && c.Caps.Has(xds.CapFileSecrets|xds.CapFileLists):
		revoked = s.Revoked
	case s.Revoked != "":
		clients.Crl = fileSource(s.Revoked)
	}
	var authorities *tlsv3.SdsSecretConfig
	switch {
	case !s.requestsClientCertificate():
	case s.Trust != Secret{}:
		authorities = s.Trust.sdsConfig()
	case c.Caps.Has(xds.CapFileSecrets):
		authorities = c.fileSecret(s, xds.FileAuthorities(s.Authorities, revoked))
	}
	common := identity.Secrets(s.params(), nil, authorities, clients)
	common.TlsCertificateSdsSecretConfigs = c.certificates(s)
	if common.TlsCertificateSdsSecretConfigs == nil {
		for _, pair := range s.files() {
			own := &tlsv3.TlsCertificate{CertificateChain: fileSource(pair[0]), PrivateKey: fileSource(pair[1])}
			common.TlsCertificates = append(common.TlsCertificates, own)
		}
	}
	if s.requestsClientCertificate() && authorities == nil {
		clients.TrustedCa = fileSource(s.Authorities)
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: clients}
	}
	return common
}

// fileSource returns a data source that Envoy reads from a file.
func fileSource(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
