//go:build kube

package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
)

// A client that applied a webhook configuration with failurePolicy Ignore can apply it again after navarchd has set
// Fail and released its field ownership: the API server reports no conflict, and keeps the roots, which have no owner.
func TestKubeClaimsAreGivenUp(t *testing.T) {
	c := controlplane.Shared(t)
	hooks, err := NewWebhooks(rights.Documented(t, c), Validating)
	if err != nil {
		t.Fatal(err)
	}
	const installed = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: istiod-default-validator, labels: {istio.io/rev: claims}}, webhooks: [{name: a.example.com, failurePolicy: Ignore,
		clientConfig: {service: {namespace: istio-system, name: istiod, port: 443}}, rules: [{operations: [CREATE], apiGroups: [claims.example.com], apiVersions: ["*"], resources: ["*"]}], sideEffects: None, admissionReviewVersions: [v1]}]}`
	apply := func() string {
		return c.Kubectl(t, installed, "apply", "--server-side", "--field-manager=helm", "-f", "-")
	}
	apply()
	t.Cleanup(func() { c.Kubectl(t, "", "delete", "validatingwebhookconfiguration", "istiod-default-validator") })
	key := Key{Name: "istiod-default-validator"}
	found, err := hooks.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	webhooks := found.Object.Object["webhooks"].([]any)
	webhooks[0].(map[string]any)["failurePolicy"] = "Fail"
	const bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
	if err := unstructured.SetNestedField(webhooks[0].(map[string]any), bundle, "clientConfig", "caBundle"); err != nil {
		t.Fatal(err)
	}
	if found, err = hooks.Write(t.Context(), key, found.Object); err != nil {
		t.Fatal(err)
	}
	given := WithoutClaims(found.Object)
	if given == nil {
		t.Fatalf("the claim is not known: %v", found.Object.GetManagedFields())
	}
	if found, err = hooks.Write(t.Context(), key, given); err != nil || WithoutClaims(found.Object) != nil || hooks.clings.Load() {
		t.Fatalf("%v: %v", err, found.Object.GetManagedFields())
	}
	apply()
	if got := c.Kubectl(t, "", "get", "validatingwebhookconfiguration", "istiod-default-validator", "-o", "jsonpath={.webhooks[0].failurePolicy} {.webhooks[0].clientConfig.caBundle}"); strings.TrimSpace(got) != "Ignore "+bundle {
		t.Errorf("after it was applied again: %s", got)
	}
}
