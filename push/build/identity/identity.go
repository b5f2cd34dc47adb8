// Package identity builds the parts of TLS contexts that concern the mesh's identities: the secrets of SDS, and the
// accepted peers.
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

// defaultDomain is the trust domain of a mesh without a stated one.
const defaultDomain = "cluster.local"

// TrustDomains returns the mesh's trust domain, then its aliases, each once and without "spiffe://".
func TrustDomains(mesh *meshv1.MeshConfig) []string {
	all := []string{cmp.Or(mesh.GetTrustDomain(), defaultDomain)}
	for _, alias := range mesh.GetTrustDomainAliases() {
		if alias = strings.TrimPrefix(alias, "spiffe://"); alias != "" && !slices.Contains(all, alias) {
			all = append(all, alias)
		}
	}
	return all
}

// URI returns the SPIFFE ID of a service account "namespace/name" in a trust domain.
func URI(domain, account string) string {
	namespace, name, _ := strings.Cut(account, "/")
	return "spiffe://" + domain + "/ns/" + namespace + "/sa/" + name
}

// Aliases returns a name in all trust domains. If name is a SPIFFE ID of one of the domains, the result has it first,
// then the same ID in each of the others. Other names have no aliases: the result is name alone.
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

// Expect has a peer's certificate have one of some names: URIs among its URIs, where there are no others, and else
// whatever kinds of names it has.
func Expect(v *tlsv3.CertificateValidationContext, names []string) {
	uris := !slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, "://") })
	for _, name := range names {
		exact := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
		if uris {
			uri := &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_URI, Matcher: exact}
			v.MatchTypedSubjectAltNames = append(v.MatchTypedSubjectAltNames, uri)
		} else {
			//lint:ignore SA1019 what Istio's proxies of all versions have
			v.MatchSubjectAltNames = append(v.MatchSubjectAltNames, exact)
		}
	}
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

// Providers returns the TLS context of an application with gRPC's own xDS client. Its certificate and roots come from
// the certificate provider "default" of its bootstrap, which Istio's agent writes. names match the names that a server
// may have; without names every trusted certificate is accepted. A server's context must have no names, because gRPC
// does not support them for clients' certificates (gRFC A29).
func Providers(names []*matcherv3.StringMatcher) *tlsv3.CommonTlsContext {
	provider := &tlsv3.CertificateProviderPluginInstance{InstanceName: xds.CertificateProvider}
	trust := &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: provider}
	//lint:ignore SA1019 gRPC's client supports this field alone
	trust.MatchSubjectAltNames = names
	return &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: provider,
		ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: trust},
	}
}

// secret returns a secret from the proxy's own agent, as Istio configures it: Envoy waits for the first fetch without
// limit.
func secret(name string) *tlsv3.SdsSecretConfig {
	s := OfAgent(name)
	s.SdsConfig.InitialFetchTimeout = durationpb.New(0)
	return s
}

// Secrets returns a TLS context with secrets by SDS: own is its certificate, authorities are the CAs of its peers. With
// own nil it presents no certificate. With authorities nil it does not validate peers, and ignores peers, which states
// the names that they may have.
func Secrets(
	params *tlsv3.TlsParameters, own, authorities *tlsv3.SdsSecretConfig, peers *tlsv3.CertificateValidationContext,
) *tlsv3.CommonTlsContext {
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

// OverADS returns a secret by SDS from the control plane.
func OverADS(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}}
}

// Of is SDS from a cluster of the proxy. The certificates of the mesh, which the agent has, are waited for without end.
func Of(name, cluster string) *tlsv3.SdsSecretConfig {
	if cluster == xds.SDSCluster && (name == xds.SDSDefault || name == xds.SDSRoot) {
		return secret(name)
	}
	return by(cluster, name)
}

// OfAgent is SDS from the proxy's own agent.
func OfAgent(name string) *tlsv3.SdsSecretConfig { return by(xds.SDSCluster, name) }

func by(cluster, name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
			}}},
		}},
		ResourceApiVersion: corev3.ApiVersion_V3,
	}}
}
