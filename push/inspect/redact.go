package inspect

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
)

// redacted replaces confidential values, as in Envoy's own dumps.
const redacted = "[redacted]"

// publicSecret returns the public parts of a Secret: the certificate chain with its OCSP staple, or the data that
// verifies peers. Private parts are replaced by redacted, and all other fields are left out.
func publicSecret(m proto.Message) *tlsv3.Secret {
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

// withoutCredential returns a copy of the configuration of a WebAssembly filter. In the copy, redacted replaces the
// credential with which the agent fetches the module. For any other message it fails, because the message must not be
// shown.
func withoutCredential(m proto.Message) (proto.Message, error) {
	config, _ := m.(*corev3.TypedExtensionConfig)
	filter, err := config.GetTypedConfig().UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("extension %q: its credential cannot be redacted: %w", config.GetName(), err)
	}
	var environment map[string]string
	switch f := filter.(type) {
	case *httpwasmv3.Wasm:
		environment = f.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()
	case *networkwasmv3.Wasm:
		environment = f.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()
	default:
		return nil, fmt.Errorf("extension %q: its credential cannot be redacted: %T is not a filter of WebAssembly", config.GetName(), filter)
	}
	if environment[extension.PullSecretVariable] != "" {
		environment[extension.PullSecretVariable] = redacted
	}
	return &corev3.TypedExtensionConfig{Name: config.GetName(), TypedConfig: xds.Any(filter)}, nil
}
