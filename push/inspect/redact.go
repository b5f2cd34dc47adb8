package inspect

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// redacted stands where Envoy's own dumps have it.
const redacted = "[redacted]"

// public is what may be shown of a Secret: the certificate chain with its staple, or what peers are verified against. What
// is not named here is not shown.
func public(m proto.Message) *tlsv3.Secret {
	s, ok := m.(*tlsv3.Secret)
	if !ok {
		return &tlsv3.Secret{}
	}
	out := &tlsv3.Secret{Name: s.GetName()}
	hidden := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: redacted}}
	switch c := s.GetType().(type) {
	case *tlsv3.Secret_TlsCertificate:
		out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: c.TlsCertificate.GetCertificateChain(), OcspStaple: c.TlsCertificate.GetOcspStaple(), PrivateKey: hidden}}
	case *tlsv3.Secret_ValidationContext:
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: c.ValidationContext}
	case *tlsv3.Secret_GenericSecret, *tlsv3.Secret_SessionTicketKeys:
		out.Type = &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: hidden}}
	}
	return out
}
