// Package extauthz builds Envoy's ext_authz filters from the mesh's providers of external authorization
// (extensionProviders envoyExtAuthzHttp and envoyExtAuthzGrpc). Such a provider authorises the requests that CUSTOM
// policies match.
//
// Owns: nothing. Reads: its arguments. Never: decides which policies select a workload; resolves a provider's service.
package extauthz

//lint:file-ignore SA1019 older configurations state deprecated fields, and older proxies support no others

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	networkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/authz"
	"navarch.io/navarch/push/xds"
)

// HTTPFilter and NetworkFilter are Envoy's names of the filters.
const (
	HTTPFilter    = "envoy.filters.http.ext_authz"
	NetworkFilter = "envoy.filters.network.ext_authz"
)

// ShadowPrefix is the prefix of the metadata keys of the RBAC filter with CUSTOM rules. The filter stores the name of
// the matching rule in this metadata.
const ShadowPrefix = "istio_ext_authz_"

// defaultTimeout is the timeout of requests to a provider without a stated timeout, as in Istio.
const defaultTimeout = 600 * time.Second

// Authorizer is a provider that CUSTOM policies of a workload name, with the result of looking up the provider's
// service. Authorizer is comparable.
type Authorizer struct {
	Provider string // name in MeshConfig.extensionProviders
	Host     string // host of the provider's service; ignored if Wrong is set
	Wrong    string // reason why the provider cannot be used and matching requests are refused; empty: it can be used
}

// Unknown is the text for Authorizer.Wrong if Service returns false for the provider.
const Unknown = "MeshConfig has no valid extensionProviders of this name with envoyExtAuthzHttp or envoyExtAuthzGrpc"

// Service returns the service of a provider, as [namespace/]host, and its port. It returns "", 0 and false if the mesh
// has no such provider, or if the provider is neither envoyExtAuthzHttp nor envoyExtAuthzGrpc. Of several providers
// with an equal name, the first counts. The argument mesh may be nil.
func Service(mesh *meshv1.MeshConfig, provider string) (service string, port uint32, ok bool) {
	p := find(mesh, provider)
	if http := p.GetEnvoyExtAuthzHttp(); http != nil {
		return http.GetService(), http.GetPort(), true
	}
	grpc := p.GetEnvoyExtAuthzGrpc()
	return grpc.GetService(), grpc.GetPort(), grpc != nil
}

// find returns the provider with a name, or nil.
func find(mesh *meshv1.MeshConfig, provider string) *meshv1.MeshConfig_ExtensionProvider {
	for _, p := range mesh.GetExtensionProviders() {
		if p.GetName() == provider {
			return p
		}
	}
	return nil
}

// HTTP returns the filter by which a provider authorises HTTP requests that its CUSTOM policies match. It returns nil
// if a.Wrong is set, or if the mesh has no provider of external authorization with the name. The argument mesh may be
// nil. The result refers to mesh, so it must not be modified.
func HTTP(mesh *meshv1.MeshConfig, a Authorizer) *httpv3.ExtAuthz {
	p := find(mesh, a.Provider)
	out := &httpv3.ExtAuthz{TransportApiVersion: corev3.ApiVersion_V3,
		FilterEnabledMetadata: matched("envoy.filters.http.rbac", a.Provider)}
	switch {
	case a.Wrong != "":
		return nil
	case p.GetEnvoyExtAuthzHttp() != nil:
		c := p.GetEnvoyExtAuthzHttp()
		out.Services = &httpv3.ExtAuthz_HttpService{HttpService: httpService(c, a.Host)}
		out.FailureModeAllow, out.StatusOnError = c.GetFailOpen(), status(c.GetStatusOnError())
		out.WithRequestBody, out.ClearRouteCache = body(c.GetIncludeRequestBodyInCheck()), c.GetClearRouteCache()
	case p.GetEnvoyExtAuthzGrpc() != nil:
		c := p.GetEnvoyExtAuthzGrpc()
		out.Services = &httpv3.ExtAuthz_GrpcService{GrpcService: grpcService(c, a.Host)}
		out.FailureModeAllow, out.StatusOnError = c.GetFailOpen(), status(c.GetStatusOnError())
		out.WithRequestBody, out.ClearRouteCache = body(c.GetIncludeRequestBodyInCheck()), c.GetClearRouteCache()
	default:
		return nil
	}
	return out
}

// Network returns the filter by which a provider authorises connections of protocols that are not HTTP. It returns nil
// if a.Wrong is set, or if the mesh has no envoyExtAuthzGrpc provider with the name. The argument mesh may be nil. The
// result refers to mesh, so it must not be modified.
func Network(mesh *meshv1.MeshConfig, a Authorizer) *networkv3.ExtAuthz {
	c := find(mesh, a.Provider).GetEnvoyExtAuthzGrpc()
	if a.Wrong != "" || c == nil {
		return nil
	}
	return &networkv3.ExtAuthz{StatPrefix: "tcp.", FailureModeAllow: c.GetFailOpen(), TransportApiVersion: corev3.ApiVersion_V3,
		GrpcService: grpcService(c, a.Host), FilterEnabledMetadata: matched("envoy.filters.network.rbac", a.Provider)}
}

// SpeaksHTTP reports whether a provider is envoyExtAuthzHttp. Such a provider can authorise only HTTP requests. For an
// unknown provider it returns false. The argument mesh may be nil.
func SpeaksHTTP(mesh *meshv1.MeshConfig, provider string) bool {
	return find(mesh, provider).GetEnvoyExtAuthzHttp() != nil
}

// httpService returns the settings of requests to a provider over HTTP.
func httpService(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider, host string) *httpv3.HttpService {
	out := &httpv3.HttpService{PathPrefix: c.GetPathPrefix(), ServerUri: &corev3.HttpUri{
		Timeout: timeout(c.GetTimeout()), Uri: "http://" + host, // Envoy ignores Uri and connects to the cluster
		HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: xds.OutboundCluster(c.GetPort(), "", host)},
	}}
	headers := matchers(c.GetIncludeRequestHeadersInCheck())
	if headers == nil {
		headers = matchers(c.GetIncludeHeadersInCheck())
	}
	var added []*corev3.HeaderValue
	for _, name := range slices.Sorted(maps.Keys(c.GetIncludeAdditionalHeadersInCheck())) {
		added = append(added, &corev3.HeaderValue{Key: name, Value: c.GetIncludeAdditionalHeadersInCheck()[name]})
	}
	if headers != nil || added != nil {
		out.AuthorizationRequest = &httpv3.AuthorizationRequest{AllowedHeaders: headers, HeadersToAdd: added}
	}
	if len(c.GetHeadersToUpstreamOnAllow())+len(c.GetHeadersToDownstreamOnDeny())+len(c.GetHeadersToDownstreamOnAllow()) > 0 {
		out.AuthorizationResponse = &httpv3.AuthorizationResponse{
			AllowedUpstreamHeaders:        matchers(c.GetHeadersToUpstreamOnAllow()),
			AllowedClientHeaders:          matchers(c.GetHeadersToDownstreamOnDeny()),
			AllowedClientHeadersOnSuccess: matchers(c.GetHeadersToDownstreamOnAllow()),
		}
	}
	return out
}

// grpcService returns the settings of requests to a provider over gRPC. The authority is the cluster's name with "|"
// replaced, because HTTP/2 does not permit "|" in an authority.
func grpcService(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider, host string) *corev3.GrpcService {
	cluster := xds.OutboundCluster(c.GetPort(), "", host)
	target := &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: strings.ReplaceAll(cluster, "|", "_.")}
	return &corev3.GrpcService{Timeout: timeout(c.GetTimeout()), TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: target}}
}

// timeout returns the stated timeout, or the default.
func timeout(stated *durationpb.Duration) *durationpb.Duration {
	if stated == nil {
		return durationpb.New(defaultTimeout)
	}
	return stated
}

// status parses the HTTP status of responses while the provider is unreachable. For a text that is not a number it
// returns nil. The result nil means Envoy's default, 403.
func status(stated string) *typev3.HttpStatus {
	code, err := strconv.ParseInt(stated, 10, 32)
	if err != nil {
		return nil
	}
	return &typev3.HttpStatus{Code: typev3.StatusCode(code)}
}

// body returns the settings of sending request bodies to the provider. The result is nil if bodies are not sent.
func body(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) *httpv3.BufferSettings {
	if c == nil {
		return nil
	}
	return &httpv3.BufferSettings{MaxRequestBytes: c.GetMaxRequestBytes(),
		AllowPartialMessage: c.GetAllowPartialMessage(), PackAsBytes: c.GetPackAsBytes()}
}

// matchers returns matchers of header names, which ignore case. "*x" matches names that end in x. "x*" matches names
// that begin with x. Without headers the result is nil.
func matchers(headers []string) *matcherv3.ListStringMatcher {
	if len(headers) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, h := range headers {
		m := &matcherv3.StringMatcher{IgnoreCase: true}
		if suffix, is := strings.CutPrefix(h, "*"); is {
			m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: suffix}
		} else if prefix, is := strings.CutSuffix(h, "*"); is {
			m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: prefix}
		} else {
			m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: h}
		}
		out.Patterns = append(out.Patterns, m)
	}
	return out
}

// matched returns a matcher of requests for which the preceding RBAC filter has stored a rule of the provider's
// policies. The argument rbac is the name of that filter.
func matched(rbac, provider string) *matcherv3.MetadataMatcher {
	return &matcherv3.MetadataMatcher{
		Filter: rbac,
		Path: []*matcherv3.MetadataMatcher_PathSegment{{
			Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: ShadowPrefix + "shadow_effective_policy_id"}}},
		Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: authz.CustomPrefix(provider)},
		}}},
	}
}
