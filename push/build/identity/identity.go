// Package identity draws the part of TLS contexts that concerns the mesh's identities: the secrets of SDS, and which peers are accepted.
//
// Owns: nothing.  Reads: its arguments.  Never: key material; it comes from the proxy's own agent.
package identity

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// defaultDomain is the trust domain where the mesh states none.
const defaultDomain = "cluster.local"

// TrustDomains are the mesh's trust domain and its aliases, each once.
func TrustDomains(mesh *meshv1.MeshConfig) []string {
	all := []string{cmp.Or(mesh.GetTrustDomain(), defaultDomain)}
	for _, alias := range mesh.GetTrustDomainAliases() {
		if alias = strings.TrimPrefix(alias, "spiffe://"); alias != "" && !slices.Contains(all, alias) {
			all = append(all, alias)
		}
	}
	return all
}

// URI is the SPIFFE id of a service account, "namespace/name".
func URI(domain, account string) string {
	namespace, name, _ := strings.Cut(account, "/")
	return "spiffe://" + domain + "/ns/" + namespace + "/sa/" + name
}

// Aliases are a name with each of the trust domains in place of its own, where it is a SPIFFE id of one of them; else the name alone.
func Aliases(domains []string, name string) []string {
	domain, path, is := strings.Cut(strings.TrimPrefix(name, "spiffe://"), "/")
	if !strings.HasPrefix(name, "spiffe://") || !is || !slices.Contains(domains, domain) {
		return []string{name}
	}
	out := []string{name}
	for _, d := range domains {
		if d != domain {
			out = append(out, "spiffe://"+d+"/"+path)
		}
	}
	return out
}

// Members matches every identity of the trust domains.
func Members(domains []string) (out []*tlsv3.SubjectAltNameMatcher) {
	for _, d := range domains {
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + d + "/"}},
		})
	}
	return out
}

// Context is the TLS context of a proxy with a certificate of the mesh: its secrets by SDS, peers as stated.
func Context(alpn []string, peers *tlsv3.CertificateValidationContext) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols:                  alpn,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secret(xds.SDSDefault)},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         peers,
				ValidationContextSdsSecretConfig: secret(xds.SDSRoot),
			},
		},
	}
}

// Providers is the TLS context of an application with gRPC's own xDS client: its certificate and what to trust come from the certificate
// provider that its bootstrap calls "default", as Istio's agent writes it. Names are those that a peer may have; none: whatever is trusted,
// and of a server's clients gRPC's client takes no others (gRFC A29).
func Providers(names []*matcherv3.StringMatcher) *tlsv3.CommonTlsContext {
	provider := &tlsv3.CertificateProviderPluginInstance{InstanceName: xds.CertificateProvider}
	trust := &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: provider}
	//lint:ignore SA1019 gRPC's client reads no other names
	trust.MatchSubjectAltNames = names
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: provider,
		ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: trust},
	}
}

// secret is SDS from the proxy's own agent, as Istio configures it: the first fetch is waited for without end.
func secret(name string) *tlsv3.SdsSecretConfig {
	s := OfAgent(name)
	s.SdsConfig.InitialFetchTimeout = durationpb.New(0)
	return s
}

// Secrets is the TLS context of a client or server that has its own certificate, and those of the authorities of its peers, by SDS. Either may be nil:
// it has none, it believes all.
func Secrets(params *tlsv3.TlsParameters, own, authorities *tlsv3.SdsSecretConfig, peers *tlsv3.CertificateValidationContext) *tlsv3.CommonTlsContext {
	context := &tlsv3.CommonTlsContext{TlsParams: params}
	if own != nil {
		context.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{own}
	}
	if authorities != nil {
		context.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext: peers, ValidationContextSdsSecretConfig: authorities,
			},
		}
	}
	return context
}

// OverADS is SDS from the control plane.
func OverADS(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3,
	}}
}

// OfAgent is SDS from the proxy's own agent.
func OfAgent(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: xds.SDSCluster},
			}}},
		}},
		ResourceApiVersion: corev3.ApiVersion_V3,
	}}
}
