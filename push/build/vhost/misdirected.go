package vhost

import (
	"net/http"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// unjudged are the filters that do not see misdirected requests: the client repeats them on another connection, where
// they count. Those of rate limits come from EnvoyFilters.
var unjudged = []string{"envoy.filters.http.ext_authz", "envoy.filters.http.jwt_authn", "envoy.filters.http.rbac",
	"envoy.filters.http.ratelimit", "envoy.filters.http.local_ratelimit"}

// misdirected returns the route of misdirected requests, and the filters that are off for them. A client that reused a
// connection because one certificate covers several hosts opens another one then (RFC 9110, 15.5.20).
func misdirected() ([]*routev3.Route, map[string]*anypb.Any) {
	filters := map[string]*anypb.Any{}
	for _, name := range unjudged {
		filters[name] = xds.Any(&routev3.FilterConfig{Disabled: true})
	}
	return []*routev3.Route{{
		Name:   "misdirected",
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusMisdirectedRequest}},
	}}, filters
}
