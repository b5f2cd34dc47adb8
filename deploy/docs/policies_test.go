package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// policies returns the ValidatingAdmissionPolicies on the security page, by name.
func policies(t *testing.T) map[string]*admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	all := map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{}
	for _, document := range strings.Split(YAML(t, "security.md", "bind the hosts alone"), "\n---\n") {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if strings.Contains(document, "kind: ValidatingAdmissionPolicy\n") {
			if err := yaml.UnmarshalStrict([]byte(document), p); err != nil {
				t.Fatal(err)
			}
			all[p.Name] = p
		}
	}
	return all
}

// admits reports whether a policy admits an object of a Namespace.
func admits(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy, object, namespace string) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), ext.Strings(), cel.Variable("object", cel.DynType), cel.Variable("namespaceObject", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]any{}
	for name, text := range map[string]string{"object": object, "namespaceObject": namespace} {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		of[name] = value
	}
	for _, v := range p.Spec.Validations {
		ast, issues := env.Compile(v.Expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", p.Name, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		result, _, err := program.Eval(of)
		if err != nil || result.Value() != true {
			return false // failurePolicy: Fail
		}
	}
	return true
}

// The policies on the security page refuse what Istio's defaults allow a tenant at a gateway, and nothing else.
func TestPoliciesForGateways(t *testing.T) {
	all := policies(t)
	for name, resources := range map[string]string{"gateways-of-operators": "gateways serviceentries workloadentries services", "hosts-of-tenants": "virtualservices"} {
		p := all[name]
		if p == nil {
			t.Fatalf("no policy %s on the page", name)
		}
		var got []string
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			got = append(got, r.Resources...)
			// An edit of an older Gateway is refused as a new one is.
			// Promise: security-gateways.md#allowed-by-istios-defaults
			if !slices.Contains(r.Operations, admissionregistrationv1.Create) || !slices.Contains(r.Operations, admissionregistrationv1.Update) {
				t.Errorf("%s matches %v of %v", name, r.Operations, r.Resources)
			}
		}
		if strings.Join(got, " ") != resources {
			t.Errorf("%s matches %v, want %s", name, got, resources)
		}
	}
	const plain, listed = "metadata: {name: shop}", "metadata: {name: shop, annotations: {edge.example.com/hosts: 'shop.example.com,www.example.com'}}"
	for _, c := range []struct {
		policy, object, namespace string
		want                      bool
	}{
		{"gateways-of-operators", "{kind: Gateway, metadata: {namespace: shop}, spec: {}}", plain, false},
		{"gateways-of-operators", "{kind: Gateway, metadata: {namespace: edge}, spec: {}}", plain, true},
		{"gateways-of-operators", "{kind: ServiceEntry, metadata: {namespace: shop}, spec: {}}", plain, false},
		{"gateways-of-operators", "{kind: WorkloadEntry, metadata: {namespace: shop}, spec: {}}", plain, false},
		{"gateways-of-operators", "{kind: Service, metadata: {namespace: shop}, spec: {type: ExternalName, externalName: evil.test}}", plain, false},
		{"gateways-of-operators", "{kind: Service, metadata: {namespace: edge}, spec: {type: ExternalName, externalName: fine.test}}", plain, true},
		{"gateways-of-operators", "{kind: Service, metadata: {namespace: shop}, spec: {type: ClusterIP}}", plain, true},
		{"gateways-of-operators", "{kind: Service, metadata: {namespace: shop}, spec: {}}", plain, true},
		{"hosts-of-tenants", "{spec: {hosts: [shop.example.com], gateways: [edge/front]}}", listed, true},
		{"hosts-of-tenants", "{spec: {hosts: [shop.example.com, pay.example.com], gateways: [edge/front, mesh]}}", listed, false},
		{"hosts-of-tenants", "{spec: {hosts: ['*.example.com'], gateways: [edge/front]}}", listed, false},
		{"hosts-of-tenants", "{spec: {hosts: [shop.example.com], gateways: [edge/front]}}", plain, false},
		{"hosts-of-tenants", "{spec: {hosts: [pay.example.com], gateways: [mesh]}}", plain, true},
		{"hosts-of-tenants", "{spec: {hosts: [pay.example.com]}}", plain, true},
		{"hosts-of-tenants", "{spec: {http: []}}", plain, true},
	} {
		if got := admits(t, all[c.policy], c.object, c.namespace); got != c.want {
			t.Errorf("%s admits %s of %s: %v, want %v", c.policy, c.object, c.namespace, got, c.want)
		}
	}
}
