package cluster

import (
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// systemCAs is where the images of proxies (Debian, Ubuntu, distroless) keep the system's certificate authorities.
const systemCAs = "/etc/ssl/certs/ca-certificates.crt"

// secure sets the transport socket. Certificates are files of the proxy, which Envoy reads itself.
func (s Outbound) secure(d *builder, p traffic.Policy) {
	switch s.TLS {
	case traffic.Plaintext:
	case traffic.AutoEndpoints:
		d.TransportSocketMatches = s.byEndpoint(d)
	case traffic.AutoAll, traffic.Mutual:
		d.TransportSocket = socket("envoy.transport_sockets.tls", s.meshTLS(d, p.TLS))
	case traffic.Originate:
		d.TransportSocket = socket("envoy.transport_sockets.tls", d.upstreamTLS(p.TLS, s.Service))
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
		inner = socket("envoy.transport_sockets.raw_buffer", &rawbufferv3.RawBuffer{})
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

func (d *builder) upstreamTLS(tls *networkingv1.ClientTLSSettings, service *model.Service) *tlsv3.UpstreamTlsContext {
	params := &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		EcdhCurves: d.mesh.Spec.GetTlsDefaults().GetEcdhCurves(), CipherSuites: d.mesh.Spec.GetTlsDefaults().GetCipherSuites(),
	}
	common := &tlsv3.CommonTlsContext{TlsParams: params}
	if tls.Mode == networkingv1.ClientTLSSettings_MUTUAL {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: file(tls.ClientCertificate), PrivateKey: file(tls.PrivateKey)}}
	}
	if d.http2() != nil {
		common.AlpnProtocols = []string{"h2"}
	}
	verify := !tls.GetInsecureSkipVerify().GetValue()
	if tls.Sni == "" {
		up := &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: verify && len(tls.SubjectAltNames) == 0}
		d.httpOptions().UpstreamHttpProtocolOptions = up
	}
	if verify {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation(tls, service)}
	}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: tls.Sni}
}

// validation is who the server must be: the rule's names, else those of a ServiceEntry.
func validation(tls *networkingv1.ClientTLSSettings, service *model.Service) *tlsv3.CertificateValidationContext {
	v := &tlsv3.CertificateValidationContext{TrustedCa: file(systemCAs)}
	if tls.CaCertificates != "" && tls.CaCertificates != "system" {
		v.TrustedCa = file(tls.CaCertificates)
	}
	if tls.CaCrl != "" {
		v.Crl = file(tls.CaCrl)
	}
	names := tls.SubjectAltNames
	if len(names) == 0 && service.Key.Kind == model.KindServiceEntry {
		names = service.Spec.SubjectAltNames
	}
	v.MatchTypedSubjectAltNames = exactly(names)
	return v
}

func exactly(names []string) (out []*tlsv3.SubjectAltNameMatcher) {
	for _, name := range names {
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: sanType(name),
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
		})
	}
	return out
}

func sanType(name string) tlsv3.SubjectAltNameMatcher_SanType {
	if strings.Contains(name, "://") {
		return tlsv3.SubjectAltNameMatcher_URI
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	return tlsv3.SubjectAltNameMatcher_DNS
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
