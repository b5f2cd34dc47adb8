package patch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestInboundRoutes(t *testing.T) {
	for cluster, port := range map[string]uint32{"inbound|8080||": 8080, "InboundPassthroughCluster": 0, "inbound|70000||": 0} {
		want := RouteConfig{Name: cluster, Port: port, Context: networkingv1.EnvoyFilter_SIDECAR_INBOUND}
		if got := InboundRoutes(cluster); got != want {
			t.Errorf("%s: %v, want %v", cluster, got, want)
		}
	}
}

// The patches of a whole route configuration are applied in order, and the result is valid for Envoy.
func TestRouteConfiguration(t *testing.T) {
	const match = "match: {context: SIDECAR_INBOUND, routeConfiguration: {name: 'inbound|8080||'"
	one := func(apply, of, patch string) string {
		return "[{applyTo: " + apply + ", " + match + of + "}}, patch: {" + patch + "}}]"
	}
	const routes, vhost = "routes: [{name: default, match: {prefix: /}, route: {cluster: in}}]", "name: 'inbound|http|80', domains: ['*'], "
	plain := "{name: 'inbound|8080||', virtual_hosts: [{" + vhost + routes + "}]}"
	for name, c := range map[string]struct{ patches, want string }{
		"none":           {"[]", plain},
		"of another":     {"[{applyTo: HTTP_ROUTE, match: {context: SIDECAR_INBOUND, routeConfiguration: {name: 'inbound|80||'}}, patch: {operation: REMOVE}}]", plain},
		"outbound":       {"[{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: REMOVE}}]", plain},
		"by port":        {"[{applyTo: HTTP_ROUTE, match: {context: SIDECAR_INBOUND, routeConfiguration: {portNumber: 8080}}, patch: {operation: REMOVE}}]", "{name: 'inbound|8080||', virtual_hosts: [{name: 'inbound|http|80', domains: ['*']}]}"},
		"the whole":      {one("ROUTE_CONFIGURATION", "", "operation: MERGE, value: {name: other, most_specific_header_mutations_wins: true}"), "{name: 'inbound|8080||', most_specific_header_mutations_wins: true, virtual_hosts: [{" + vhost + routes + "}]}"},
		"a virtual host": {one("VIRTUAL_HOST", "", "operation: MERGE, value: {include_request_attempt_count: true}"), "{name: 'inbound|8080||', virtual_hosts: [{" + vhost + "include_request_attempt_count: true, " + routes + "}]}"},
		"removed":        {one("VIRTUAL_HOST", "", "operation: REMOVE"), "{name: 'inbound|8080||'}"},
		"added":          {one("VIRTUAL_HOST", "", "operation: ADD, value: {name: more, domains: [a]}"), "{name: 'inbound|8080||', virtual_hosts: [{" + vhost + routes + "}, {name: more, domains: [a]}]}"},
		"added, with a name that is taken": {one("VIRTUAL_HOST", "", "operation: ADD, value: {name: more, domains: ['*', a, A]}"),
			"{name: 'inbound|8080||', virtual_hosts: [{" + vhost + routes + "}, {name: more, domains: [a]}]}"},
		"added, with no name of its own": {one("VIRTUAL_HOST", "", "operation: ADD, value: {name: more, domains: ['*']}"), plain},
		"added in place of the removed": {one("VIRTUAL_HOST", "", "operation: REMOVE}}, {applyTo: VIRTUAL_HOST, "+match+"}}, patch: {operation: ADD, value: {name: more, domains: ['*']}"),
			"{name: 'inbound|8080||', virtual_hosts: [{name: more, domains: ['*']}]}"},
		"a route":                 {one("HTTP_ROUTE", ", vhost: {route: {name: default}}", "operation: MERGE, value: {route: {timeout: 9s}}"), "{name: 'inbound|8080||', virtual_hosts: [{" + vhost + "routes: [{name: default, match: {prefix: /}, route: {cluster: in, timeout: 9s}}]}]}"},
		"what Envoy would refuse": {one("VIRTUAL_HOST", "", "operation: ADD, value: {domains: [a]}"), plain},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := &routev3.RouteConfiguration{}, &routev3.RouteConfiguration{}
			routeYAML(t, plain, got)
			routeYAML(t, c.want, want)
			got, _ = RouteConfiguration(got, InboundRoutes("inbound|8080||"), routePatches(t, c.patches))
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
