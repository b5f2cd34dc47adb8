package vhost

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// Answers of a host that HTTP/3 serves too say so. The same rule without HTTP/3 is another fragment.
func TestHTTP3(t *testing.T) {
	spec := &networkingv1.VirtualService{}
	fromYAML(t, "{hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}", spec)
	s := specOf(record[*model.VirtualService](t, model.KindVirtualService, "v", spec))
	for _, port := range []uint32{0, 443, 8443} {
		s.HTTP3 = port
		want := map[uint32]string{443: `h3=":443"; ma=86400`, 8443: `h3=":8443"; ma=86400`}[port]
		got := ""
		for _, h := range draw(t, s).Routes[0].ResponseHeadersToAdd {
			got += h.Header.Key + ": " + h.Header.Value
		}
		if want != "" {
			want = "alt-svc: " + want
		}
		if got != want {
			t.Errorf("port %d: %q, want %q", port, got, want)
		}
	}
}

// A virtual host without routes counts no attempts, unless it redirects to https.
func TestWithoutRoutes(t *testing.T) {
	s := specOf(nil)
	s.NoDefault, s.Destinations = true, dests.List()
	if vh := draw(t, s); len(vh.Routes) != 0 || vh.IncludeRequestAttemptCount {
		t.Errorf("without routes: %v", vh)
	}
	s.TLSOnly = true
	if vh := draw(t, s); vh.RequireTls != routev3.VirtualHost_ALL || !vh.IncludeRequestAttemptCount {
		t.Errorf("redirected: %v", vh)
	}
}

// Misdirected requests are answered 421, and no policy, token or rate limit is asked.
func TestMisdirected(t *testing.T) {
	s := specOf(nil)
	s.NoDefault, s.Misdirected, s.Destinations = true, true, dests.List()
	vh := draw(t, s)
	if len(vh.Routes) != 1 || vh.Routes[0].GetDirectResponse().GetStatus() != 421 || vh.Routes[0].GetMatch().GetPrefix() != "/" {
		t.Errorf("routes %v", vh.Routes)
	}
	for _, name := range []string{"ext_authz", "jwt_authn", "rbac", "ratelimit", "local_ratelimit"} {
		config := &routev3.FilterConfig{}
		if err := vh.TypedPerFilterConfig["envoy.filters.http."+name].UnmarshalTo(config); err != nil || !config.Disabled {
			t.Errorf("%s: %v %v", name, config, err)
		}
	}
}

// A virtual host of a GRPC-Web server enables the filter, whose settings stay those of the filter chain.
func TestGRPCWeb(t *testing.T) {
	s := specOf(nil)
	for _, on := range []bool{false, true} {
		s.GRPCWeb = on
		packed, config := draw(t, s).TypedPerFilterConfig["envoy.filters.http.grpc_web"], &routev3.FilterConfig{}
		enabled := packed.UnmarshalTo(config) == nil && !config.Disabled && config.Config != nil && config.Config.TypeUrl == ""
		if (packed != nil) != on || enabled != on {
			t.Errorf("%t: %v", on, packed)
		}
	}
}

// A rule sends a request to 8 mirrors at most, and 32 times again.
// Promise: security-gateways.md#make-a-gateway-fail
func TestCopiesAreBounded(t *testing.T) {
	for stated, want := range map[int][2]int{3: {3, 3}, 2000: {model.MostMirrors, model.MostRetries}} {
		route := only(t, drawYAML(t, fmt.Sprintf("{hosts: [reviews], http: [{route: [{destination: {host: reviews}}], retries: {attempts: %d}, mirrors: [%s]}]}",
			stated, strings.Repeat("{destination: {host: reviews}},", stated)))).GetRoute()
		if got := [2]int{len(route.GetRequestMirrorPolicies()), int(route.GetRetryPolicy().GetNumRetries().GetValue())}; got != want {
			t.Errorf("%d stated: mirrors and retries %v, want %v", stated, got, want)
		}
	}
}

// A rule and a destination set no number of retries beyond 32 by Envoy's header, and may remove that header.
// Promise: security-gateways.md#make-a-gateway-fail
func TestRetriesByHeadersAreBounded(t *testing.T) {
	const header = "x-envoy-max-retries"
	for value, want := range map[string]int{"3": 2, "32": 2, "33": 0, "1e9": 0, "%REQ(x)%": 0} {
		ops := fmt.Sprintf("headers: {request: {set: {X-Envoy-Max-Retries: '%s'}, remove: [%s]}}", value, header)
		route := only(t, drawYAML(t, fmt.Sprintf("{hosts: [reviews], http: [{%s, route: [{destination: {host: reviews}, %[1]s}]}]}", ops)))
		got := len(route.RequestHeadersToAdd)
		for _, w := range route.GetRoute().GetWeightedClusters().GetClusters() {
			got += len(w.RequestHeadersToAdd)
		}
		if !slices.Contains(route.RequestHeadersToRemove, header) {
			t.Errorf("%s: the header is not removed", value)
		}
		if got != want {
			t.Errorf("%s: it is set %d times, want %d", value, got, want)
		}
	}
}
