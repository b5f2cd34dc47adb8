package normal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/problem"
)

// Each operation on each applyTo changes something, in istiod (pilot/pkg/networking/core/envoyfilter) and here, or the
// patch is ignored by both and a warning names its operation. That those that act do is for the scenes to show
// (cmd/internal/scene, TestEveryOperationIsShown).
func TestOperations(t *testing.T) {
	acts := map[string]string{
		"LISTENER":            "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE",
		"FILTER_CHAIN":        "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE",
		"CLUSTER":             "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE",
		"VIRTUAL_HOST":        "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE REPLACE",
		"HTTP_ROUTE":          "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE INSERT_BEFORE INSERT_AFTER INSERT_FIRST",
		"LISTENER_FILTER":     "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE INSERT_BEFORE INSERT_AFTER INSERT_FIRST REPLACE",
		"NETWORK_FILTER":      "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE INSERT_BEFORE INSERT_AFTER INSERT_FIRST REPLACE",
		"HTTP_FILTER":         "MERGE MERGE_AND_REPLACE_LIST ADD REMOVE INSERT_BEFORE INSERT_AFTER INSERT_FIRST REPLACE",
		"ROUTE_CONFIGURATION": "MERGE MERGE_AND_REPLACE_LIST",
		"BOOTSTRAP":           "MERGE",
		"EXTENSION_CONFIG":    "ADD",
	}
	codes := map[string]problem.Analyzer{"ADD ROUTE_CONFIGURATION": "IST0153", "REMOVE ROUTE_CONFIGURATION": "IST0154"}
	named := map[string]string{
		"LISTENER_FILTER": "{listener: {listenerFilter: a}}",
		"NETWORK_FILTER":  "{listener: {filterChain: {filter: {name: a}}}}",
		"HTTP_FILTER":     "{listener: {filterChain: {filter: {name: envoy.http_connection_manager, subFilter: {name: a}}}}}",
	}
	for applyTo := range networkingv1.EnvoyFilter_ApplyTo_value {
		for op := range networkingv1.EnvoyFilter_Patch_Operation_value {
			if applyTo == "INVALID" || op == "INVALID" {
				continue
			}
			value, match := ", value: {}", ""
			if op == "REMOVE" {
				value = ""
			}
			if m := named[applyTo]; m != "" {
				match = ", match: " + m
			}
			r := testNormal.Object(read(t, istio("EnvoyFilter", fmt.Sprintf("{configPatches: [{applyTo: %s%s, patch: {operation: %s%s}}]}", applyTo, match, op, value))), &fake{})
			if r.Spoiled || len(r.Refused) > 0 {
				t.Errorf("%s %s: refused, which Istio does not: %v", op, applyTo, r.Problems)
			}
			if slices.Contains(strings.Fields(acts[applyTo]), op) {
				wantProblems(t, r.Problems)
				continue
			}
			wantProblems(t, r.Problems, fmt.Sprintf("warning spec.configPatches[0].patch.operation: %s does nothing to %s, and the patch is ignored", op, applyTo))
			code := codes[op+" "+applyTo]
			if op == "REPLACE" {
				code = "IST0152"
			}
			if len(r.Problems) == 1 && r.Problems[0].Analyzer != code {
				t.Errorf("%s %s: code %q, want %q", op, applyTo, r.Problems[0].Analyzer, code)
			}
		}
	}
}

// A patch that Istio admits and ignores is a warning at its field.
func TestPatchWithoutEffect(t *testing.T) {
	for patch, want := range map[string]string{
		"{applyTo: LISTENER_FILTER, patch: {operation: REMOVE}}":                                                                           "match.listener.listenerFilter: REMOVE needs the name of a filter",
		"{applyTo: NETWORK_FILTER, match: {listener: {portNumber: 80}}, patch: {operation: REPLACE, value: {}}}":                           "match.listener.filterChain.filter: REPLACE needs the name of a filter",
		"{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: a}}}}, patch: {operation: REMOVE}}":                        "match.listener.filterChain.filter.subFilter: REMOVE needs the name of a filter",
		"{applyTo: CLUSTER, patch: {operation: REMOVE, value: {}}}":                                                                        "patch.value: has no effect with operation REMOVE",
		"{applyTo: LISTENER_FILTER, match: {cluster: {name: a}}, patch: {operation: ADD, value: {}}}":                                      "match: applyTo LISTENER_FILTER ignores a match on this kind of object",
		"{applyTo: EXTENSION_CONFIG, match: {listener: {filterChain: {filter: {}}}}, patch: {operation: ADD, value: {}}}":                  "match: applyTo EXTENSION_CONFIG ignores a match on this kind of object",
		"{applyTo: BOOTSTRAP, match: {cluster: {name: a}}, patch: {operation: MERGE, value: {}}}":                                          "match: applyTo BOOTSTRAP ignores a match on this kind of object",
		"{applyTo: FILTER_CHAIN, match: {listener: {filterChain: {filter: {name: a}}}}, patch: {operation: REMOVE}}":                       "match.listener.filterChain.filter: is not looked at for applyTo FILTER_CHAIN",
		"{applyTo: LISTENER, match: {listener: {filterChain: {filter: {name: a}}}}, patch: {operation: MERGE, value: {}}}":                 "match.listener.filterChain.filter: is not looked at for applyTo LISTENER",
		"{applyTo: NETWORK_FILTER, match: {proxy: {proxyVersion: '1.*'}}, patch: {operation: INSERT_FIRST, value: {}}}":                    "",
		"{applyTo: LISTENER_FILTER, match: {listener: {listenerFilter: a}}, patch: {operation: REPLACE, value: {}}}":                       "",
		"{applyTo: EXTENSION_CONFIG, match: {context: SIDECAR_INBOUND, proxy: {proxyVersion: '1.*'}}, patch: {operation: ADD, value: {}}}": "",
	} {
		r := testNormal.Object(read(t, istio("EnvoyFilter", "{configPatches: ["+patch+"]}")), &fake{})
		if r.Spoiled || len(r.Refused) > 0 {
			t.Errorf("%s: refused, which Istio does not: %v", patch, r.Problems)
		}
		if want == "" {
			wantProblems(t, r.Problems)
		} else {
			wantProblems(t, r.Problems, "warning spec.configPatches[0]."+want)
		}
	}
}
