// Package extauthz draws providers of external authorization (MeshConfig extensionProviders envoyExtAuthzHttp and envoyExtAuthzGrpc) as Envoy's
// ext_authz filters, which ask them about what CUSTOM policies match.
//
// Owns: nothing.  Reads: its arguments.  Never: decides which policies select a workload; looks for services.
package extauthz

//lint:file-ignore SA1019 deprecated fields are what older configurations state, and what the proxies in the field know

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

// Names of the filters.
const (
	HTTPFilter    = "envoy.filters.http.ext_authz"
	NetworkFilter = "envoy.filters.network.ext_authz"
)

// ShadowPrefix is what an RBAC filter that asks which CUSTOM rule matches puts before the names of what it finds.
const ShadowPrefix = "istio_ext_authz_"

// defaultTimeout is Istio's, where a provider states none.
const defaultTimeout = 600 * time.Second

// Authorizer is a provider as CUSTOM policies of a workload name it, and what was found of it. Comparable.
type Authorizer struct {
	Provider string
	Host     string // of the service that it is
	Wrong    string // why it cannot be asked: what the policies match is refused; empty: it can
}

// Unknown is why a provider cannot be asked for which Service is false.
const Unknown = "MeshConfig has no valid extensionProviders of this name with envoyExtAuthzHttp or envoyExtAuthzGrpc"

// Service is where a provider of a mesh is: [namespace/]host, and its port. False: there is no such provider, or it is of another kind.
func Service(mesh *meshv1.MeshConfig, provider string) (service string, port uint32, ok bool) {
	p := find(mesh, provider)
	if http := p.GetEnvoyExtAuthzHttp(); http != nil {
		return http.GetService(), http.GetPort(), true
	}
	grpc := p.GetEnvoyExtAuthzGrpc()
	return grpc.GetService(), grpc.GetPort(), grpc != nil
}

func find(mesh *meshv1.MeshConfig, provider string) *meshv1.MeshConfig_ExtensionProvider {
	for _, p := range mesh.GetExtensionProviders() {
		if p.GetName() == provider {
			return p
		}
	}
	return nil
}

// HTTP is the filter of HTTP that asks a provider; nil: it cannot be asked.
func HTTP(mesh *meshv1.MeshConfig, a Authorizer) *httpv3.ExtAuthz {
	p := find(mesh, a.Provider)
	out := &httpv3.ExtAuthz{TransportApiVersion: corev3.ApiVersion_V3, FilterEnabledMetadata: matched("envoy.filters.http.rbac", a.Provider)}
	switch {
	case a.Wrong != "":
		return nil
	case p.GetEnvoyExtAuthzHttp() != nil:
		c := p.GetEnvoyExtAuthzHttp()
		out.Services = &httpv3.ExtAuthz_HttpService{HttpService: httpService(c, a.Host)}
		out.FailureModeAllow, out.StatusOnError, out.WithRequestBody = c.GetFailOpen(), status(c.GetStatusOnError()), body(c.GetIncludeRequestBodyInCheck())
		out.ClearRouteCache = c.GetClearRouteCache()
	case p.GetEnvoyExtAuthzGrpc() != nil:
		c := p.GetEnvoyExtAuthzGrpc()
		out.Services = &httpv3.ExtAuthz_GrpcService{GrpcService: grpcService(c, a.Host)}
		out.FailureModeAllow, out.StatusOnError, out.WithRequestBody = c.GetFailOpen(), status(c.GetStatusOnError()), body(c.GetIncludeRequestBodyInCheck())
		out.ClearRouteCache = c.GetClearRouteCache()
	default:
		return nil
	}
	return out
}

// Network is the filter of connections that are not HTTP; nil: the provider cannot be asked, or not about these: one that speaks HTTP.
func Network(mesh *meshv1.MeshConfig, a Authorizer) *networkv3.ExtAuthz {
	c := find(mesh, a.Provider).GetEnvoyExtAuthzGrpc()
	if a.Wrong != "" || c == nil {
		return nil
	}
	return &networkv3.ExtAuthz{StatPrefix: "tcp.", FailureModeAllow: c.GetFailOpen(), TransportApiVersion: corev3.ApiVersion_V3,
		GrpcService: grpcService(c, a.Host), FilterEnabledMetadata: matched("envoy.filters.network.rbac", a.Provider)}
}

// SpeaksHTTP says whether a provider is asked over HTTP, which asks about HTTP alone.
func SpeaksHTTP(mesh *meshv1.MeshConfig, provider string) bool {
	return find(mesh, provider).GetEnvoyExtAuthzHttp() != nil
}

func httpService(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider, host string) *httpv3.HttpService {
	out := &httpv3.HttpService{PathPrefix: c.GetPathPrefix(), ServerUri: &corev3.HttpUri{
		Timeout: timeout(c.GetTimeout()), Uri: "http://" + host, // the filter asks the cluster, whatever this says
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

// grpcService asks a cluster; its name is no authority of HTTP/2, so that a form of it is sent.
func grpcService(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider, host string) *corev3.GrpcService {
	cluster := xds.OutboundCluster(c.GetPort(), "", host)
	return &corev3.GrpcService{Timeout: timeout(c.GetTimeout()), TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
		ClusterName: cluster, Authority: strings.ReplaceAll(cluster, "|", "_."),
	}}}
}

func timeout(stated *durationpb.Duration) *durationpb.Duration {
	if stated == nil {
		return durationpb.New(defaultTimeout)
	}
	return stated
}

// status is what a request is answered with while the provider cannot be asked; nil: 403.
func status(stated string) *typev3.HttpStatus {
	code, err := strconv.ParseInt(stated, 10, 32)
	if err != nil {
		return nil
	}
	return &typev3.HttpStatus{Code: typev3.StatusCode(code)}
}

func body(c *meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody) *httpv3.BufferSettings {
	if c == nil {
		return nil
	}
	return &httpv3.BufferSettings{MaxRequestBytes: c.GetMaxRequestBytes(), AllowPartialMessage: c.GetAllowPartialMessage(), PackAsBytes: c.GetPackAsBytes()}
}

// matchers match headers by their names, "*x" those that end in x, "x*" those that begin with it; nil: none.
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

// matched says that a rule of a provider's policies has matched, as the RBAC filter before has found.
func matched(rbac, provider string) *matcherv3.MetadataMatcher {
	return &matcherv3.MetadataMatcher{
		Filter: rbac,
		Path:   []*matcherv3.MetadataMatcher_PathSegment{{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: ShadowPrefix + "shadow_effective_policy_id"}}},
		Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: authz.CustomPrefix(provider)},
		}}},
	}
}
