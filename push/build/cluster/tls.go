package cluster

//lint:file-ignore SA1019 match_subject_alt_names is deprecated, and what Istio's proxies of all versions have

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// systemCAs is where the images of proxies (Debian, Ubuntu, distroless) keep the system's certificate authorities.
const systemCAs = "/etc/ssl/certs/ca-certificates.crt"

// secure sets the transport socket.
func (s Outbound) secure(d *builder, p traffic.Policy) {
	switch s.TLS {
	case traffic.Plaintext:
	case traffic.AutoEndpoints:
		d.TransportSocketMatches = s.byEndpoint(d)
	case traffic.AutoAll, traffic.Mutual:
		d.TransportSocket = socket("envoy.transport_sockets.tls", s.meshTLS(d, p.TLS))
	case traffic.Originate:
		d.TransportSocket = socket("envoy.transport_sockets.tls", s.upstreamTLS(d, p.TLS))
	case traffic.Closed:
		d.refuse()
		return
	}
	if p.ProxyProtocol != nil {
		d.announce(p.ProxyProtocol)
	}
}

func socket(name string, config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: xds.Any(config)}}
}

// announce wraps the transport socket into the PROXY protocol.
func (d *builder) announce(p *networkingv1.TrafficPolicy_ProxyProtocol) {
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

// upstreamTLS is TLS that is not the mesh's own: with a Secret (credentialName), which the control plane sends; with files of the proxy, which
// its agent reads where it does that (xds.CapFileSecrets), and reads again as they change, or else Envoy itself.
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
	peers := s.servers(tls)
	var common *tlsv3.CommonTlsContext
	var own, authorities *tlsv3.SdsSecretConfig
	switch name := tls.GetCredentialName(); {
	case name != "":
		own, authorities = identity.OverADS(xds.SecretResource(name)), identity.OverADS(xds.SecretResource(name)+xds.AuthoritiesSuffix)
	case s.Caps.Has(xds.CapFileSecrets):
		own = identity.OfAgent(xds.FileCertificate(tls.ClientCertificate, tls.PrivateKey))
		revoked := ""
		if s.Caps.Has(xds.CapFileLists) {
			revoked, peers.Crl = tls.CaCrl, nil
		}
		authorities = identity.OfAgent(xds.FileAuthorities(cmp.Or(tls.CaCertificates, "system"), revoked))
	}
	if !mutual {
		own = nil
	}
	if !verify {
		authorities = nil
	}
	common = identity.Secrets(params, own, authorities, peers)
	if mutual && own == nil {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: file(tls.ClientCertificate), PrivateKey: file(tls.PrivateKey)}}
	}
	switch {
	case !verify:
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{}}
	case authorities == nil:
		peers.TrustedCa = file(systemCAs)
		if tls.CaCertificates != "" && tls.CaCertificates != "system" {
			peers.TrustedCa = file(tls.CaCertificates)
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: peers}
	}
	if d.http2() != nil {
		common.AlpnProtocols = []string{"h2"}
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: tls.Sni}
}

// servers is who the server must be: the rule's names, else those of a ServiceEntry.
func (s Outbound) servers(tls *networkingv1.ClientTLSSettings) *tlsv3.CertificateValidationContext {
	v := &tlsv3.CertificateValidationContext{}
	if tls.CaCrl != "" {
		v.Crl = file(tls.CaCrl)
	}
	names := tls.SubjectAltNames
	if len(names) == 0 && s.Service.Key.Kind == model.KindServiceEntry {
		names = s.Service.Spec.SubjectAltNames
	}
	expect(v, names)
	return v
}

// expect has one of some names be the server's: URIs among its URIs, where there are no others, and else whatever kinds of names it has.
func expect(v *tlsv3.CertificateValidationContext, names []string) {
	if !slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, "://") }) {
		v.MatchTypedSubjectAltNames = exactly(names)
		return
	}
	for _, name := range names {
		v.MatchSubjectAltNames = append(v.MatchSubjectAltNames, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}})
	}
}

func exactly(uris []string) (out []*tlsv3.SubjectAltNameMatcher) {
	for _, name := range uris {
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	return out
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
