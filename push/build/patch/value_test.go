package patch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// values are mergeable values by applyTo: values that are always safe to merge, values that are safe in some resources,
// and values that Envoy refuses.
var manyValues = map[string][]string{
	"CLUSTER": {
		`{connect_timeout: 2s}`, `{connect_timeout: 0s, lb_policy: RANDOM}`, `{metadata: {filter_metadata: {a: {b: 1}}}}`, `{metadata: {filter_metadata: {a: {c: 2}, d: {}}}}`,
		`{outlier_detection: {interval: 1s}}`, `{outlier_detection: {base_ejection_time: 2s, max_ejection_percent: {value: 5}}}`, `{outlier_detection: {max_ejection_percent: 101}}`,
		`{transport_socket: {typed_config: {` + tlsType + `, sni: x}}}`, `{transport_socket: {name: tls}}`, `{transport_socket: {name: tls, typed_config: {` + tlsType + `, allow_renegotiation: true}}}`,
		`{transport_socket: {name: raw, typed_config: {` + rawType + `}}}`, `{circuit_breakers: {thresholds: [{max_retries: 1}]}}`, `{load_assignment: {endpoints: [{priority: 200}]}}`,
		`{type: EDS, eds_cluster_config: {service_name: x}}`, `{type: STATIC}`, `{cluster_type: {name: x}}`, `{cluster_type: {typed_config: {` + rawType + `}}}`, `{name: other}`, `{nonsense: 1}`,
		`{typed_extension_protocol_options: {a: {` + httpType + `}}}`, `{health_checks: [{timeout: 1s}]}`, `{transport_socket: {typed_config: {` + tlsType + `, max_session_keys: 3}}}`,
	},
	"VIRTUAL_HOST": {
		`{include_request_attempt_count: true}`, `{domains: [b, b]}`, `{domains: ["a\nb"]}`, `{request_headers_to_remove: [x]}`, `{retry_policy: {num_retries: 2}}`, `{retry_policy: {retry_back_off: {max_interval: 2s}}}`,
		`{retry_policy: {retry_back_off: {base_interval: 1s}}}`, `{routes: [{match: {prefix: /x}}]}`, `{routes: [{match: {prefix: /x}, redirect: {}}]}`, `{require_tls: 9}`,
	},
	"HTTP_ROUTE": {
		`{route: {timeout: 9s}}`, `{route: {cluster: x}}`, `{redirect: {response_code: 99}}`, `{redirect: {path_redirect: /}}`, `{route: {retry_policy: {retry_back_off: {max_interval: 3s}}}}`, `{direct_response: {status: 200}}`,
		`{direct_response: {status: 1}}`, `{match: {headers: [{name: ""}]}}`, `{match: {headers: [{name: a}]}}`, `{metadata: {filter_metadata: {a: {b: 1}}}}`, `{decorator: {propagate: false}}`, `{decorator: {operation: o}}`,
	},
}

// Many patches together have the same result, and leave out the same patches, as each applied alone to a validated
// copy.
func TestManyPatchesEqualOneByOne(t *testing.T) {
	cluster := func(m proto.Message, patches []model.Patch) (proto.Message, []error) {
		return Cluster(m.(*clusterv3.Cluster), patches)
	}
	host := func(m proto.Message, patches []model.Patch) (proto.Message, []error) {
		return ApplyVirtualHost(proto.CloneOf(m.(*routev3.VirtualHost)), patches)
	}
	base := map[string]proto.Message{"CLUSTER": &clusterv3.Cluster{}, "VIRTUAL_HOST": &routev3.VirtualHost{}, "HTTP_ROUTE": &routev3.VirtualHost{}}
	fromYAML(t, `{name: c, type: EDS, eds_cluster_config: {service_name: eds}, connect_timeout: 1s, metadata: {filter_metadata: {istio: {z: 1}}}}`, base["CLUSTER"])
	fromYAML(t, `{name: "a:80", domains: [a]}`, base["VIRTUAL_HOST"])
	fromYAML(t, `{name: "a:80", domains: [a], routes: [{match: {prefix: /}, route: {cluster: c}}, {match: {prefix: /r}, redirect: {}}]}`, base["HTTP_ROUTE"])
	r := rand.New(rand.NewPCG(1, 2))
	left := 0
	for i := range 450 {
		kind := []string{"CLUSTER", "VIRTUAL_HOST", "HTTP_ROUTE"}[i%3]
		apply := host
		if kind == "CLUSTER" {
			apply = cluster
		}
		var list []string
		for range 1 + r.IntN(8) {
			op := "MERGE"
			if r.IntN(5) == 0 {
				op = "MERGE_AND_REPLACE_LIST"
			}
			list = append(list, fmt.Sprintf("{applyTo: %s, patch: {operation: %s, value: %s}}", kind, op, manyValues[kind][r.IntN(len(manyValues[kind]))]))
		}
		text := "[" + strings.Join(list, ", ") + "]"
		patches := routePatches(t, text)
		want, refused := base[kind], []string{}
		for _, p := range patches {
			m, faults := apply(want, []model.Patch{p})
			for _, err := range faults {
				refused = append(refused, err.Error())
			}
			want = m
		}
		left += len(refused)
		for range 2 { // what patches are merged into leaves them as they are
			got, faults := apply(base[kind], patches)
			reported := []string{}
			for _, err := range faults {
				reported = append(reported, err.Error())
			}
			slices.Sort(reported)
			slices.Sort(refused)
			if !proto.Equal(got, want) || Check(got) != nil || !slices.Equal(reported, refused) {
				t.Fatalf("%s:\n%s\n%v\nwant\n%s\n%v", text, protojson.Format(got), reported, protojson.Format(want), refused)
			}
		}
	}
	if left < 150 {
		t.Errorf("%d patches are left out, want hundreds", left)
	}
}

// The cost of many patches grows with their number, if they are valid or each is invalid by itself. A patch is decoded
// once, however often it is applied.
func TestCostOfManyPatches(t *testing.T) {
	c := &clusterv3.Cluster{}
	fromYAML(t, `{name: c, connect_timeout: 1s, metadata: {filter_metadata: {istio: {z: 1}}}}`, c)
	for name, value := range map[string]string{
		"good": `{metadata: {filter_metadata: {m%d: {a: 1}}}}`, "bad": `{connect_timeout: 0s, metadata: {filter_metadata: {m%d: {a: 1}}}}`,
		"long lists": `{circuit_breakers: {thresholds: [{max_retries: %d}]}}`,
	} {
		cost := func(n int) float64 {
			var list []string
			for i := range n {
				list = append(list, "{applyTo: CLUSTER, patch: {operation: MERGE, value: "+fmt.Sprintf(value, i)+"}}")
			}
			patches := routePatches(t, "["+strings.Join(list, ", ")+"]")
			Cluster(c, patches)
			if a, _ := sharedValue[*clusterv3.Cluster](patches[n-1]); a == nil || a != valueOf(patches[n-1], c.ProtoReflect().Type()).message {
				t.Errorf("%s: decoded again", name)
			}
			return testing.AllocsPerRun(3, func() { Cluster(c, patches) })
		}
		if few, many := cost(20), cost(200); many > 12*few {
			t.Errorf("%s: 20 patches cost %v allocations, 200 cost %v", name, few, many)
		}
	}
}
