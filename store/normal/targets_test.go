package normal

import (
	"slices"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// A policy with targetRefs is for the Gateways among them, also one that cannot be understood: no other workload of its
// namespace is closed for it. Targets of other kinds are for waypoints: they are named, and yield nothing.
func TestTargetedPolicies(t *testing.T) {
	const gateway = "{kind: Gateway, group: gateway.networking.k8s.io, name: %}"
	a, b, service := strings.ReplaceAll(gateway, "%", "a"), strings.ReplaceAll(gateway, "%", "b"), "{kind: Service, name: s}"
	token := ", jwtRules: [{issuer: a, jwks: '" + oneKey + "'}]}"
	for _, c := range []struct {
		kind, spec, gateways string
		closed, named        bool
	}{
		{"AuthorizationPolicy", "{targetRefs: [" + service + "], rules: [{to: [{operation: {ports: ['80']}}]}]}", "", false, true},
		{"AuthorizationPolicy", "{targetRefs: [" + service + "], rules: [{from: [{source: {ipBlocks: [x]}}]}]}", "", false, true},
		{"AuthorizationPolicy", "{targetRefs: [" + a + "], action: DENY, rules: [{to: [{operation: {ports: ['80']}}]}]}", "a", false, false},
		{"AuthorizationPolicy", "{targetRefs: [" + a + ", " + service + ", " + b + "], rules: [{}]}", "a b", false, true},
		{"AuthorizationPolicy", "{targetRefs: [" + service + ", " + b + "], rules: [{from: [{source: {ipBlocks: [x]}}]}]}", "b", true, true},
		{"AuthorizationPolicy", "{targetRef: " + b + ", rules: [{from: [{source: {ipBlocks: [x]}}]}]}", "b", true, false},
		{"RequestAuthentication", "{targetRef: {kind: Service, name: a}" + token, "", false, true},
		{"RequestAuthentication", "{targetRef: " + a + token, "a", false, false},
		{"RequestAuthentication", "{targetRefs: [" + a + "], jwtRules: [{issuer: a, jwks: x}]}", "a", true, false},
	} {
		r := testNormal.Object(read(t, istio(c.kind, c.spec)), &fake{})
		named := slices.ContainsFunc(r.Problems, func(p object.Problem) bool {
			return p.Code == problem.NotSupported && strings.HasPrefix(p.Field, "spec.targetRef")
		})
		all := r.Records
		if r.Closed != nil {
			all = append(all, r.Closed)
		}
		gateways := ""
		for _, record := range all {
			spec := record.(*model.Policy).Spec
			gateways += strings.Join(spec.Gateways, " ")
			if spec.MeshWide || spec.Selector[model.GatewayName] != spec.Gateways[0] || spec.Closed != c.closed {
				t.Errorf("%s %s: %v", c.kind, c.spec, spec)
			}
		}
		if gateways != c.gateways || c.closed != (r.Closed != nil) || named != c.named {
			t.Errorf("%s %s: for %q, %+v", c.kind, c.spec, gateways, r)
		}
	}
}

func TestPolicyValues(t *testing.T) {
	for spec, want := range map[string]string{
		"{rules: [{from: [{source: {ipBlocks: [10.0.0.0/33]}}]}]}":           "spec.rules[0].from[0].source.ipBlocks[0]",
		"{rules: [{}, {to: [{operation: {notPorts: ['80', '65536']}}]}]}":    "spec.rules[1].to[0].operation.notPorts[1]",
		"{rules: [{when: [{key: source.ip}]}]}":                              "spec.rules[0].when[0]",
		"{rules: [{when: [{key: destination.port, values: [http]}]}]}":       "spec.rules[0].when[0].values[0]",
		"{action: DENY, rules: [{when: [{key: remote.ip, values: [a.b]}]}]}": "spec.rules[0].when[0].values[0]",
		"{rules: [{to: [{operation: {paths: ['/{**}/{*}']}}]}]}":             "spec.rules[0].to[0].operation.paths[0]",
		"{rules: [{to: [{operation: {paths: ['/a{*}']}}]}]}":                 "spec.rules[0].to[0].operation.paths[0]",
		"{rules: [{to: [{operation: {notPaths: ['a/{*}']}}]}]}":              "spec.rules[0].to[0].operation.notPaths[0]",
	} {
		r := testNormal.Object(read(t, istio("AuthorizationPolicy", spec)), &fake{})
		if !r.Spoiled || len(r.Problems) != 1 || r.Problems[0].Field != want || r.Closed == nil {
			t.Errorf("%s: %+v", spec, r)
		}
	}
}

// An unreadable policy closes the workloads that it selects; with an unreadable selector, its whole namespace.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestPolicyThatCannotBeUnderstood(t *testing.T) {
	root := &fake{mesh: &meshv1.MeshConfig{RootNamespace: "shop"}}
	for spec, want := range map[string]string{
		"{selector: {matchLabels: {a: b}}, rules: {}}":                                      "{selector: {a: b}, closed: true}",
		"{selector: {matchLabels: {a: b}}, rules: [{form: [{source: {namespaces: [a]}}]}]}": "{selector: {a: b}, closed: true}", // a misspelt restriction must not open
		"{selector: {matchLabels: {a: 3}}}":                                                 "{closed: true}",
		"{selector: {matchLabels: {a: 'b*'}}}":                                              "{closed: true}",
		"{selector: a}":                                                                     "{closed: true}",
		"{slector: {matchLabels: {a: b}}}":                                                  "{closed: true}",
		"{action: PERMIT}":                                                                  "{closed: true}",
		"[]":                                                                                "{closed: true}",
	} {
		r := testNormal.Object(read(t, istio("AuthorizationPolicy", spec)), &fake{})
		if !r.Spoiled || len(r.Problems) == 0 || r.Problems[0].Severity == problem.Warning {
			t.Errorf("%s: %+v", spec, r)
			continue
		}
		wantBody(t, Result{Records: []model.Record{r.Closed}}, key(model.KindAuthorizationPolicy, "x"), want)
		if r := testNormal.Object(read(t, istio("AuthorizationPolicy", spec)), root); !r.Closed.(*model.Policy).Spec.MeshWide {
			t.Errorf("%s: in the root namespace it must close the mesh", spec)
		}
	}
	p := testNormal.Object(read(t, istio("PeerAuthentication", "{selector: {matchLabels: {a: b}}, mtls: {mode: STRICT}}")), root)
	if p.Records[0].(*model.Policy).Spec.MeshWide {
		t.Error("a PeerAuthentication with a selector stays in the root namespace")
	}
}
