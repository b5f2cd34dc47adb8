// Package identity builds the parts of TLS contexts that concern identities: references to secrets over SDS, and
// matchers of the peers' names.
//
// Owns: nothing. Reads: its arguments. Never: reads key material, which the proxy gets over SDS.
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

// TrustDomains returns the mesh's trust domain (default: cluster.local), then its aliases in their order. Each domain
// occurs once. A leading "spiffe://" is removed from aliases, and empty aliases are skipped. The argument mesh may be
// nil. The caller owns the result.
func TrustDomains(mesh *meshv1.MeshConfig) []string {
	all := []string{cmp.Or(mesh.GetTrustDomain(), defaultDomain)}
	for _, alias := range mesh.GetTrustDomainAliases() {
		if alias = strings.TrimPrefix(alias, "spiffe://"); alias != "" && !slices.Contains(all, alias) {
			all = append(all, alias)
		}
	}
	return all
}

// URI returns the SPIFFE ID of a service account. The argument domain is a trust domain without "spiffe://". The
// argument account has the form "namespace/name". URI does not validate the arguments. Without "/" in account, the name
// in the SPIFFE ID is empty.
func URI(domain, account string) string {
	namespace, name, _ := strings.Cut(account, "/")
	return "spiffe://" + domain + "/ns/" + namespace + "/sa/" + name
}

// Aliases returns a peer's name and its equivalents in the other trust domains. If name is a SPIFFE ID of one of the
// domains, the result is name, then the same path in each other domain. For any other name the result is name alone.
// The domains are without "spiffe://".
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

// Members returns a matcher for each trust domain, which matches every SPIFFE ID of that domain. The domains are
// without "spiffe://". Without domains the result is nil.
func Members(domains []string) (out []*tlsv3.SubjectAltNameMatcher) {
	for _, d := range domains {
		out = append(out, &tlsv3.SubjectAltNameMatcher{
			SanType: tlsv3.SubjectAltNameMatcher_URI,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + d + "/"}},
		})
	}
	return out
}

// Expect adds names to v. A peer's certificate must have at least one of the names. If all names are URIs (contain
// "://"), only the URIs of the certificate are compared. If a name is not a URI, all names of the certificate are
// compared. Without names, v does not change.
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

// Context returns the TLS context of a proxy that presents its mesh certificate, for TLS 1.2 and 1.3. The certificate
// and the mesh's roots come from the proxy's own agent over SDS. The argument alpn lists the protocols to negotiate.
// The argument peers states the accepted names of peers. The result refers to both arguments, and the caller owns the
// rest.
func Context(alpn []string, peers *tlsv3.CertificateValidationContext) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols:                  alpn,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{ofMesh(xds.SDSDefault)},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         peers,
				ValidationContextSdsSecretConfig: ofMesh(xds.SDSRoot),
			},
		},
	}
}

// Providers returns the TLS context of an application with gRPC's own xDS client. The certificate and the roots come
// from the certificate provider "default" of the application's bootstrap, which Istio's agent writes. A client passes
// the matchers of the server's names. Without matchers, every trusted certificate is accepted. A server must pass no
// matchers, because gRPC does not support them for clients' certificates (gRFC A29). The result refers to names.
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

// ofMesh returns the reference to a mesh certificate or root at the proxy's own agent. As in Istio, Envoy waits for the
// first fetch without limit.
func ofMesh(name string) *tlsv3.SdsSecretConfig {
	s := OfAgent(name)
	s.SdsConfig.InitialFetchTimeout = durationpb.New(0)
	return s
}

// Secrets returns a TLS context whose secrets come over SDS. The argument own refers to the presented certificate. If
// own is nil, no certificate is presented. The argument authorities refers to the CAs of the peers. If authorities is
// nil, peers are not verified, and the argument peers is ignored. The argument peers states the accepted names of
// peers. The result refers to all arguments.
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

// OverADS returns the reference to a secret that the control plane sends on the proxy's ADS stream. The caller owns the
// result.
func OverADS(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}}
}

// Of returns the reference to a secret that an SDS server behind a cluster of the proxy sends. For the mesh certificate
// and the mesh roots of the proxy's own agent, Envoy waits without limit. For other secrets it waits for its default
// timeout. The caller owns the result.
func Of(name, cluster string) *tlsv3.SdsSecretConfig {
	if cluster == xds.SDSCluster && (name == xds.SDSDefault || name == xds.SDSRoot) {
		return ofMesh(name)
	}
	return overGRPC(cluster, name)
}

// OfAgent returns the reference to a secret at the proxy's own agent, with Envoy's default timeout. The caller owns the
// result.
func OfAgent(name string) *tlsv3.SdsSecretConfig { return overGRPC(xds.SDSCluster, name) }

// overGRPC returns the reference to a secret that a gRPC server behind a cluster sends.
func overGRPC(cluster, name string) *tlsv3.SdsSecretConfig {
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
