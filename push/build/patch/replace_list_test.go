package patch

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// TestMergeAndReplaceList: for every applyTo, MERGE appends to a list and MERGE_AND_REPLACE_LIST replaces it.
func TestMergeAndReplaceList(t *testing.T) {
	listener := func(patches []model.Patch) proto.Message {
		l, faults := Listener(webListener("L", 80), out, patches)
		if len(faults) > 0 {
			t.Error(faults)
		}
		return l
	}
	route := func(patches []model.Patch) proto.Message {
		rc := &routev3.RouteConfiguration{}
		routeYAML(t, `{name: "80", virtual_hosts: [{name: "a:80", domains: [a], routes: [{name: default, match: {prefix: /}, route: {cluster: c}}]}]}`, rc)
		of := RouteConfig{Name: "80", Port: 80, Context: out}
		for _, p := range patches {
			if p.Config().GetApplyTo().String() == "ROUTE_CONFIGURATION" && !MergesRouteConfig(p, of) {
				t.Errorf("%v is not for route configuration 80", p.Config())
			}
		}
		rc, faults := RouteConfiguration(rc, of, patches)
		if len(faults) > 0 {
			t.Error(faults)
		}
		return rc
	}
	cluster := func(patches []model.Patch) proto.Message {
		c, faults := Cluster(&clusterv3.Cluster{Name: "c"}, patches)
		if len(faults) > 0 {
			t.Error(faults)
		}
		return c
	}
	const (
		fault   = `typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, downstream_nodes: [%]}`
		manager = `typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, original_ip_detection_extensions: [{name: %, typed_config: {"@type": type.googleapis.com/google.protobuf.Empty}}]}`
		rules   = `typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol, rules: [{tlv_type: 1, on_tlv_present: {key: %}}]}`
	)
	for _, c := range []struct {
		apply, value string // % stands for one item of a list
		in           func([]model.Patch) proto.Message
		before       string // patch that makes what there is to patch
	}{
		{"CLUSTER", "{filters: [{name: %}]}", cluster, ""},
		{"LISTENER", "{access_log: [{name: %}]}", listener, ""},
		{"LISTENER_FILTER", "{" + rules + "}", listener, "{applyTo: LISTENER_FILTER, patch: {operation: ADD, value: {name: proxy, " + strings.Replace(rules, "%", "zero", 1) + "}}}, "},
		{"FILTER_CHAIN", "{filter_chain_match: {server_names: [%]}}", listener, ""},
		{"NETWORK_FILTER", "{" + manager + "}", listener, ""},
		{"HTTP_FILTER", "{" + fault + "}", listener, ""},
		{"ROUTE_CONFIGURATION", "{internal_only_headers: [%]}", route, ""},
		{"VIRTUAL_HOST", "{request_headers_to_remove: [%]}", route, ""},
		{"HTTP_ROUTE", "{request_headers_to_remove: [%]}", route, ""},
	} {
		items := func(operation string) (there []string) {
			patch := func(operation, item string) string {
				match := ""
				if c.apply == "FILTER_CHAIN" {
					match = "match: {listener: {filterChain: {name: web}}}, "
				}
				return "{applyTo: " + c.apply + ", " + match + "patch: {operation: " + operation + ", value: " + strings.Replace(c.value, "%", item, 1) + "}}"
			}
			patches := routePatches(t, "["+c.before+patch("MERGE", "one")+", "+patch(operation, "two")+"]")
			if c.apply == "LISTENER" && !ListenerMatches(patches[1], out, "L", 80) {
				t.Errorf("%s: is not for listeners", operation)
			}
			for _, p := range patches {
				if err := Problem(p); err != nil {
					t.Errorf("%s %s: %v", c.apply, operation, err)
				}
			}
			text := protojson.Format(c.in(patches))
			for _, item := range []string{"zero", "one", "two"} {
				if strings.Contains(text, `"`+item+`"`) {
					there = append(there, item)
				}
			}
			return there
		}
		if got := items("MERGE"); !slices.Equal(got[max(0, len(got)-2):], []string{"one", "two"}) {
			t.Errorf("%s MERGE: %v, want one and two", c.apply, got)
		}
		if got := items("MERGE_AND_REPLACE_LIST"); !slices.Equal(got, []string{"two"}) {
			t.Errorf("%s MERGE_AND_REPLACE_LIST: %v, want two alone", c.apply, got)
		}
	}
}
