package compare

import (
	"encoding/json"
	"strings"
	"testing"
)

// value parses JSON; empty: nil.
func value(t *testing.T, text string) any {
	t.Helper()
	if text == "" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// Each condition holds for a difference of its row, and not for one that only looks like it.
func TestConditions(t *testing.T) {
	known := seen{theirClusters: map[string]bool{"outbound|9080|v1|reviews.shop": true, "outbound|81||a.shop": true},
		ourClusters: map[string]bool{"outbound|9080|v1|reviews.shop": true}, theirEmpty: map[string]bool{"outbound_.80_._.a.shop": true}}
	for _, row := range []struct {
		place, theirs, ours string // whole resources
		router              bool
		argued              int
		counted             int
	}{
		// The provider of a tracer makes tags matter.
		{"listeners x", `{"tracing": {"custom_tags": [{"tag": "a"}]}}`, `{"tracing": {"sampling": 1}}`, false, 1, 2},
		{"listeners x", `{"tracing": {"custom_tags": [{"tag": "a"}], "provider": {"name": "z"}}}`, `{"tracing": {"provider": {"name": "z"}}}`, false, 0, 1},
		// Settings of DNS, where no names are resolved and where they are.
		{"clusters a", `{"type": "ORIGINAL_DST", "dns_refresh_rate": "5s"}`, `{"type": "ORIGINAL_DST"}`, false, 1, 1},
		{"clusters a", `{"type": "STRICT_DNS", "dns_refresh_rate": "5s"}`, `{"type": "STRICT_DNS"}`, false, 0, 1},
		{"clusters a", `{"type": "STRICT_DNS"}`, `{"type": "STRICT_DNS", "dns_failure_refresh_rate": {"base_interval": "2s"}}`, false, 1, 1},
		{"clusters a", `{"type": "EDS"}`, `{"type": "EDS", "dns_failure_refresh_rate": {"base_interval": "2s"}}`, false, 0, 1},
		// A digest, and other metadata.
		{"clusters a", `{"name": "a"}`, `{"name": "a", "metadata": {"filter_metadata": {"navarch": {"x": 1}}}}`, false, 1, 1},
		{"clusters a", `{"name": "a"}`, `{"name": "a", "metadata": {"filter_metadata": {"navarch": {"x": 1}, "envoy.lb": {}}}}`, false, 0, 1},
		// A destination that does not exist, one that does, and another subset.
		{"routes 80", `{"r": {"route": {"cluster": "outbound|80|v1|reviews.shop", "hash_policy": [{"a": 1}]}}}`,
			`{"r": {"route": {"cluster": "outbound|9080|v1|reviews.shop", "hash_policy": [{"b": 1}]}}}`, false, 3, 3},
		{"routes 80", `{"r": {"route": {"cluster": "outbound|81||a.shop", "hash_policy": [{"a": 1}]}}}`,
			`{"r": {"route": {"cluster": "outbound|9080||a.shop", "hash_policy": [{"b": 1}]}}}`, false, 0, 3},
		{"routes 80", `{"r": {"route": {"cluster": "outbound|80|v2|reviews.shop"}}}`, `{"r": {"route": {"cluster": "outbound|9080|v1|reviews.shop"}}}`, false, 0, 1},
		{"routes 80", `{"r": {"route": {"weighted_clusters": {"clusters": [{"name": "outbound|80|v1|reviews.shop", "weight": 10}]}}}}`,
			`{"r": {"route": {"weighted_clusters": {"clusters": [{"name": "outbound|9080|v1|reviews.shop", "weight": 10}]}}}}`, false, 2, 2},
		{"routes 80", `{"r": {"route": {"weighted_clusters": {"clusters": [{"name": "outbound|80|v1|reviews.shop", "weight": 10}]}}}}`,
			`{"r": {"route": {"weighted_clusters": {"clusters": [{"name": "outbound|9080|v1|reviews.shop", "weight": 20}]}}}}`, false, 0, 2},
		// An address of a host, and another name.
		{"routes 80", `{"virtual_hosts": [{"name": "a", "domains": ["a"]}]}`, `{"virtual_hosts": [{"name": "a", "domains": ["a", "10.0.0.1:80", "[2001:db8::1]"]}]}`, false, 1, 1},
		{"routes 80", `{"virtual_hosts": [{"name": "a", "domains": ["a"]}]}`, `{"virtual_hosts": [{"name": "a", "domains": ["a", "b", "10.0.0.1"]}]}`, false, 0, 1},
		{"routes 80", `{"virtual_hosts": [{"name": "a", "domains": ["a", "10.0.0.1"]}]}`, `{"virtual_hosts": [{"name": "a", "domains": ["a"]}]}`, false, 0, 1},
		// An address twice, and an address that is missing.
		{"endpoints a", `{"endpoints": [{"lb_endpoints": [` + at("1") + "," + at("1") + `]}]}`, `{"endpoints": [{"lb_endpoints": [` + at("1") + `]}]}`, false, 1, 1},
		{"endpoints a", `{"endpoints": [{"lb_endpoints": [` + at("1") + "," + at("2") + `]}]}`, `{"endpoints": [{"lb_endpoints": [` + at("1") + `]}]}`, false, 0, 1},
		{"endpoints a", `{"endpoints": [{"lb_endpoints": [` + at("1") + `]}]}`, `{"endpoints": [{"lb_endpoints": [` + at("1") + "," + at("1") + `]}]}`, false, 0, 1},
		// A filter behind the one that ends the chain.
		{"listeners x", `{"c": {"filters": [{"name": "envoy.filters.network.tcp_proxy"}, {"name": "z"}]}}`,
			`{"c": {"filters": [{"name": "z"}, {"name": "envoy.filters.network.tcp_proxy"}]}}`, false, 1, 1},
		{"listeners x", `{"c": {"filters": [{"name": "y"}, {"name": "z"}]}}`, `{"c": {"filters": [{"name": "z"}, {"name": "y"}]}}`, false, 0, 1},
		// Lines of gateways hold for gateways alone.
		{"listeners x", `{"a": 1}`, `{"a": 1, "continue_on_listener_filters_timeout": true}`, true, 1, 1},
		{"listeners x", `{"a": 1}`, `{"a": 1, "continue_on_listener_filters_timeout": true}`, false, 0, 1},
		{"listeners x", `{"a": 1, "continue_on_listener_filters_timeout": true}`, `{"a": 1}`, true, 0, 1},
		{"listeners x", `{"a": 1}`, `{"a": 1, "listener_filters": [{"name": "envoy.filters.listener.tls_inspector"}]}`, true, 1, 1},
		{"listeners x", `{"a": 1}`, `{"a": 1, "listener_filters": [{"name": "envoy.filters.listener.other"}]}`, true, 0, 1},
		// A chain to nothing, and one to endpoints.
		{"listeners x", `{"filter_chains": [` + chain("outbound_.80_._.a.shop") + `, {"f": 1}]}`, `{"filter_chains": [{"f": 1}]}`, true, 1, 1},
		{"listeners x", `{"filter_chains": [` + chain("outbound_.80_._.b.shop") + `, {"f": 1}]}`, `{"filter_chains": [{"f": 1}]}`, true, 0, 1},
		{"listeners x", `{"g": {"envoy_grpc": {"cluster_name": "outbound|90||g.a", "authority": "g.a"}}}`,
			`{"g": {"envoy_grpc": {"cluster_name": "outbound|90||g.a", "authority": "outbound_.90_._.g.a"}}}`, true, 1, 1},
		{"listeners x", `{"g": {"envoy_grpc": {"cluster_name": "outbound|90||g.a", "authority": "g.a"}}}`,
			`{"g": {"envoy_grpc": {"cluster_name": "outbound|90||h.a", "authority": "outbound_.90_._.g.a"}}}`, true, 0, 2},
		{"listeners x", `{"local_jwks": {"inline_string": "{\"a\": 1, \"b\": 2}"}}`, `{"local_jwks": {"inline_string": "{\"b\": 2, \"a\": 1}"}}`, true, 1, 1},
		{"listeners x", `{"local_jwks": {"inline_string": "{\"a\": 1}"}}`, `{"local_jwks": {"inline_string": "{\"a\": 2}"}}`, true, 0, 1},
		// Differences that are not counted, and near misses.
		{"clusters a", `{"c": {"name": "a"}}`, `{"c": {"name": "a", "match_subject_alt_names": [{"prefix": "spiffe://a/"}]}}`, false, 0, 0},
		{"clusters a", `{"c": {"match_subject_alt_names": [{"prefix": "spiffe://a/"}]}}`, `{"c": {}}`, false, 0, 1},
		{"listeners a", `{"c": {"name": "a"}}`, `{"c": {"name": "a", "match_subject_alt_names": [{"prefix": "spiffe://a/"}]}}`, false, 0, 1},
		{"listeners a", `{"filter_chains": [{"name": "x", "f": {"r": {"name": "y"}}}]}`, `{"filter_chains": [{"name": "z", "f": {"r": {"name": "y"}}}]}`, false, 0, 0},
		{"listeners a", `{"filter_chains": [{"name": "x", "f": {"r": {"name": "y"}}}]}`, `{"filter_chains": [{"name": "x", "f": {"r": {"name": "z"}}}]}`, false, 0, 1},
		// An identity is never argued for.
		{"listeners x", `{"tracing": {"custom_tags": [{"tag": "spiffe://a/b"}]}}`, `{"tracing": {"sampling": 1}}`, false, 0, 2},
	} {
		theirs, ours := value(t, row.theirs).(map[string]any), value(t, row.ours).(map[string]any)
		known.resource = pair{theirs, ours}
		n, counted := 0, 0
		for _, d := range diff(theirs, ours) {
			place := row.place + d.path
			if !counts(place, d, row.router) {
				continue
			}
			counted++
			if argued(place, d, &known, row.router) != nil {
				n++
			}
		}
		if n != row.argued || counted != row.counted {
			t.Errorf("%s: %s and %s: %d of %d are argued for, want %d of %d",
				row.place, row.theirs, row.ours, n, counted, row.argued, row.counted)
		}
	}
}

// at returns an endpoint.
func at(last string) string { return `{"endpoint": {"address": {"a": "10.0.0.` + last + `"}}}` }

// chain returns a filter chain by SNI to a cluster.
func chain(cluster string) string {
	return strings.ReplaceAll(`{"filter_chain_match": {"application_protocols": ["istio"], "server_names": ["C"]}, "filters": [{"typed_config": {"cluster": "C"}}]}`, "C", cluster)
}
