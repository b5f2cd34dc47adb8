package patch

import (
	"errors"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/store/model"
)

// TestLeft: a patch of any kind that does not decode, or whose result Envoy would refuse, is left out. It is reported
// with its place, the resource and the reason, and the patch after it is applied.
func TestLeft(t *testing.T) {
	fault := `typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, headers: [{name: ""}]}`
	listener := func(patches []model.Patch) []error {
		_, faults := Listener(webListener("L", 80), out, patches)
		return faults
	}
	config := func(patches []model.Patch) []error {
		in := &routev3.RouteConfiguration{}
		routeYAML(t, `{name: "inbound|8080||", virtual_hosts: [{name: "a:80", domains: [a], routes: [{name: one, match: {prefix: /}, route: {cluster: c}}]}]}`, in)
		_, faults := RouteConfiguration(in, InboundRoutes(in.Name), patches)
		return faults
	}
	cluster := func(patches []model.Patch) []error {
		_, faults := Cluster(&clusterv3.Cluster{Name: "c", ConnectTimeout: durationpb.New(1)}, patches)
		return faults
	}
	for _, c := range []struct {
		apply, patch string
		in           func([]model.Patch) []error
		good         string // value of the same kind
		resource     string
		why          string
	}{
		{"CLUSTER", "MERGE, value: {connect_timeout: 0s}", cluster, "{connect_timeout: 2s}", "cluster c", "ConnectTimeout"},
		{"CLUSTER", "MERGE, value: {nonsense: 1}", cluster, "{connect_timeout: 2s}", "cluster c", `unknown field "nonsense"`},
		{"LISTENER", "MERGE, value: {max_connections_to_accept_per_socket_event: 0}", listener, "{tcp_backlog_size: 9}", "listener L", "MaxConnectionsToAcceptPerSocketEvent"},
		{"LISTENER", "MERGE, value: {nonsense: 1}", listener, "{tcp_backlog_size: 9}", "listener L", `unknown field "nonsense"`},
		{"LISTENER_FILTER", "ADD, value: {nonsense: 1}", listener, "{}", "listener L", `unknown field "nonsense"`},
		{"FILTER_CHAIN", "MERGE, value: {filters: [{name: ''}]}", listener, "{transport_socket_connect_timeout: 9s}", "listener L", "Filter.Name"},
		{"FILTER_CHAIN", "ADD, value: {nonsense: 1}", listener, "{transport_socket_connect_timeout: 9s}", "listener L", `unknown field "nonsense"`},
		{"NETWORK_FILTER", `MERGE, value: {typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, max_request_headers_kb: 100000}}`,
			listener, "{}", "listener L", "MaxRequestHeadersKb"},
		{"NETWORK_FILTER", "INSERT_FIRST, value: {nonsense: 1}", listener, "{}", "listener L", `unknown field "nonsense"`},
		{"HTTP_FILTER", "MERGE, value: {" + fault + "}", listener, "{}", "listener L", "HeaderMatcher.Name"},
		{"HTTP_FILTER", "ADD, value: {nonsense: 1}", listener, "{}", "listener L", `unknown field "nonsense"`},
		{"HTTP_FILTER", "MERGE, value: {nonsense: 1}", listener, "{}", "listener L", `unknown field "nonsense"`},
		{"ROUTE_CONFIGURATION", `MERGE, value: {request_headers_to_remove: ["a\nb"]}`, config, "{request_headers_to_remove: [a]}", "route configuration inbound|8080||", "RequestHeadersToRemove"},
		{"VIRTUAL_HOST", "MERGE, value: {routes: [{match: {prefix: /x}}]}", config, "{include_request_attempt_count: true}", "virtual host a:80", "Action"},
		{"VIRTUAL_HOST", "REPLACE, value: {name: x}", config, "{include_request_attempt_count: true}", "virtual host a:80", "Domains"},
		{"VIRTUAL_HOST", "ADD, value: {domains: [b]}", config, "{include_request_attempt_count: true}", "route configuration inbound|8080||", "VirtualHost.Name"},
		{"HTTP_ROUTE", "MERGE, value: {redirect: {response_code: 99}}", config, "{route: {timeout: 2s}}", "virtual host a:80", "ResponseCode"},
		{"HTTP_ROUTE", "ADD, value: {name: x}", config, "{route: {timeout: 2s}}", "virtual host a:80", "Match"},
	} {
		good := "{applyTo: " + c.apply + ", patch: {operation: MERGE, value: " + c.good + "}}"
		faults := c.in(routePatches(t, "[{applyTo: "+c.apply+", patch: {operation: "+c.patch+"}}, "+good+"]"))
		if len(faults) == 0 {
			t.Errorf("%s %s: nothing is left out", c.apply, c.patch)
		}
		for _, err := range faults {
			of := Left{}
			if !errors.As(err, &of) || of.Resource != c.resource || !strings.HasPrefix(of.Field, "spec.configPatches[0].patch.value") || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s %s: %v, left out of %q; want patch 0 and %s, of %q", c.apply, c.patch, err, of.Resource, c.why, c.resource)
			}
		}
	}
}

// Names of resources cannot be patched.
func TestNamesStand(t *testing.T) {
	patches := func(apply string) []model.Patch {
		return routePatches(t, "[{applyTo: "+apply+", patch: {operation: MERGE, value: {name: other}}}]")
	}
	l, listener := Listener(webListener("L", 80), out, patches("LISTENER"))
	rc, head := ApplyRouteConfig(&routev3.RouteConfiguration{Name: "80"}, patches("ROUTE_CONFIGURATION"))
	c, cluster := Cluster(&clusterv3.Cluster{Name: "c"}, patches("CLUSTER"))
	if l.Name != "L" || rc.Name != "80" || c.Name != "c" {
		t.Errorf("renamed: %s, %s, %s", l.Name, rc.Name, c.Name)
	}
	for _, faults := range [][]error{listener, head, cluster} {
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), "spec.configPatches[0].patch.value.name: the name of a ") {
			t.Errorf("told %v, want the name", faults)
		}
	}
}
