package vhost

import (
	"net/http"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// skippedFilters are the filters that are disabled for misdirected requests (misdirected). The client repeats such a
// request on another connection, where the filters apply. Only EnvoyFilters add the two filters for rate limits.
var skippedFilters = []string{"envoy.filters.http.ext_authz", "envoy.filters.http.jwt_authn", "envoy.filters.http.rbac",
	"envoy.filters.http.ratelimit", "envoy.filters.http.local_ratelimit"}

// enabledFilter is the configuration that enables a filter with the filter's own settings. Envoy requires the field
// config, which may be empty.
var enabledFilter = xds.Any(&routev3.FilterConfig{Config: &anypb.Any{}})

// misdirected returns a route that answers every request with 421, and the configuration that disables skippedFilters.
// A request is misdirected if another server of the gateway serves its host. A client sends such a request if it reuses
// a connection for several hosts that one certificate covers. The status 421 makes the client open a connection for the
// requested host (RFC 9110, 15.5.20).
func misdirected() ([]*routev3.Route, map[string]*anypb.Any) {
	filters := map[string]*anypb.Any{}
	for _, name := range skippedFilters {
		filters[name] = xds.Any(&routev3.FilterConfig{Disabled: true})
	}
	return []*routev3.Route{{
		Name:   "misdirected",
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusMisdirectedRequest}},
	}}, filters
}
