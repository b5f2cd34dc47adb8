package cluster

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// systemCAs is the file with the system's CAs in the images of proxies (Debian, Ubuntu, distroless).
const systemCAs = "/etc/ssl/certs/ca-certificates.crt"

// setTransportSocket sets the transport sockets for the Spec's TLS mode. For traffic.Closed it removes the endpoints.
func (s Outbound) setTransportSocket(d *builder, p traffic.Policy) {
	switch s.TLS {
	case traffic.Plaintext:
	case traffic.AutoEndpoints:
		d.TransportSocketMatches = s.matchesByTLSMode(d)
	case traffic.AutoAll, traffic.Mutual:
		d.TransportSocket = socket("envoy.transport_sockets.tls", s.meshTLS(d, p.TLS))
	case traffic.Originate:
		d.TransportSocket = socket("envoy.transport_sockets.tls", s.upstreamTLS(d, p.TLS))
	case traffic.Closed:
		d.removeEndpoints()
		return
	}
	if p.ProxyProtocol != nil {
		d.wrapProxyProtocol(p.ProxyProtocol)
	}
}

// socket returns a transport socket with a configuration.
func socket(name string, config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(config)}}
}

// wrapProxyProtocol wraps the transport sockets in sockets that send the header of the PROXY protocol.
func (d *builder) wrapProxyProtocol(p *networkingv1.TrafficPolicy_ProxyProtocol) {
	inner := d.TransportSocket
	if inner == nil {
		inner = socket("raw_buffer", &rawbufferv3.RawBuffer{})
	}
	version := corev3.ProxyProtocolConfig_V1
	if p.Version == networkingv1.TrafficPolicy_ProxyProtocol_V2 {
		version = corev3.ProxyProtocolConfig_V2
	}
	wrap := func(inner *corev3.TransportSocket) *corev3.TransportSocket {
		return socket("envoy.transport_sockets.upstream_proxy_protocol", &proxyprotocolv3.ProxyProtocolUpstreamTransport{
			Config: &corev3.ProxyProtocolConfig{Version: version}, TransportSocket: inner,
		})
	}
	if len(d.TransportSocketMatches) == 0 {
		d.TransportSocket = wrap(inner)
	}
	for _, m := range d.TransportSocketMatches {
		m.TransportSocket = wrap(m.TransportSocket)
	}
}

// upstreamTLS returns the TLS context for servers outside of the mesh's mTLS. If the rule names a Secret or ConfigMap
// (credentials), the control plane sends its content as a secret. If the rule names neither, the certificates are files
// of the proxy. A proxy's agent with xds.CapFileSecrets reads these files, and reads them again after each change.
// Without such an agent, Envoy reads them once.
func (s Outbound) upstreamTLS(d *builder, tls *networkingv1.ClientTLSSettings) *tlsv3.UpstreamTlsContext {
	params := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		EcdhCurves: d.mesh.Spec.GetTlsDefaults().GetEcdhCurves(), CipherSuites: d.mesh.Spec.GetTlsDefaults().GetCipherSuites(),
	}
	verify := !tls.GetInsecureSkipVerify().GetValue()
	if tls.Sni == "" {
		up := &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: verify && len(tls.SubjectAltNames) == 0}
		d.httpOptions().UpstreamHttpProtocolOptions = up
	}
	mutual := tls.Mode == networkingv1.ClientTLSSettings_MUTUAL
	peers := s.serverValidation(tls)
	var common *tlsv3.CommonTlsContext
	var own, authorities *tlsv3.SdsSecretConfig
	name, trust := s.credentials(tls)
	files := s.Caps.Has(xds.CapFileSecrets)
	switch {
	case name != "":
		own = identity.OverADS(model.PairResource(name))
	case files:
		own = identity.OfAgent(xds.OwnedFile(xds.FileCertificate(tls.ClientCertificate, tls.PrivateKey), s.Foreign))
	}
	switch {
	case trust != "":
		authorities = identity.OverADS(model.SecretResource(trust))
	case files:
		revoked := ""
		if s.Caps.Has(xds.CapFileLists) {
			revoked, peers.Crl = tls.CaCrl, nil
		}
		authorities = identity.OfAgent(s.authorities(tls, revoked))
	}
	if !mutual {
		own = nil
	}
	if !verify {
		authorities = nil
	}
	common = identity.Secrets(params, own, authorities, peers)
	if mutual && own == nil {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{
			CertificateChain: fileSource(tls.ClientCertificate), PrivateKey: fileSource(tls.PrivateKey)}}
	}
	switch {
	case !verify:
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{}}
	case authorities == nil:
		peers.TrustedCa = fileSource(systemCAs)
		if tls.CaCertificates != "" && tls.CaCertificates != "system" {
			peers.TrustedCa = fileSource(tls.CaCertificates)
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: peers}
	}
	if d.http2() != nil {
		common.AlpnProtocols = []string{"h2"}
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: tls.Sni}
}

// authorities returns the name of the secret in which an agent serves files with the CAs of servers. All rules that
// name no file share the secret with the system's CAs.
func (s Outbound) authorities(tls *networkingv1.ClientTLSSettings, revoked string) string {
	name := xds.FileAuthorities(cmp.Or(tls.CaCertificates, "system"), revoked)
	if name == xds.FileAuthorities("system", "") {
		return name
	}
	return xds.OwnedFile(name, s.Foreign)
}

// credentials returns the names of the Secret with the client's certificate, and of the Secret or ConfigMap with the
// CAs of servers. Both are empty for a proxy that may not request them.
func (s Outbound) credentials(tls *networkingv1.ClientTLSSettings) (own, trust string) {
	if !s.Secrets {
		return "", ""
	}
	own, trust = tls.GetCredentialName(), tls.GetCaCertCredentialName()
	if own != "" && trust == "" {
		trust = own + model.AuthoritiesSuffix
	}
	return own, trust
}

// serverValidation returns the validation of the server's certificate: the revocation lists, and the accepted names.
// The names are those of the rule, or else those of a ServiceEntry.
func (s Outbound) serverValidation(tls *networkingv1.ClientTLSSettings) *tlsv3.CertificateValidationContext {
	v := &tlsv3.CertificateValidationContext{}
	if tls.CaCrl != "" {
		v.Crl = fileSource(tls.CaCrl)
	}
	names := tls.SubjectAltNames
	if len(names) == 0 && s.Service.Key.Kind == model.KindServiceEntry {
		names = s.Service.Spec.SubjectAltNames
	}
	identity.Expect(v, names)
	return v
}

// fileSource returns a data source that Envoy reads from a file.
func fileSource(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
