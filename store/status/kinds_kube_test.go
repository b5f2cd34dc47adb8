//go:build kube

package status

import (
	"context"
	"fmt"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
)

// specs has a minimal valid spec for each kind.
var specs = map[string]string{
	"DestinationRule": `{host: a.b}`, "ServiceEntry": `{hosts: [a.b]}`, "VirtualService": `{hosts: [a.b], http: [{route: [{destination: {host: a.b}}]}]}`,
	"WorkloadEntry": `{address: 192.0.2.7}`, "WorkloadGroup": `{template: {}}`, "TrafficExtension": `{lua: {inlineCode: "x = 1"}}`, "WasmPlugin": `{url: "oci://example.com/x"}`,
}

// With the documented rights, and no others: objects of each of Istio's kinds are read again, as after a conflict, and
// have their status written; so are webhook configurations, WorkloadEntries and the ConfigMap of the roots read.
func TestKubeEachKindIsWritten(t *testing.T) {
	c := controlplane.Shared(t)
	namespace, kubeconfig := c.Namespace(t), rights.Documented(t, c)
	for _, kind := range IstioKinds {
		api, err := NewIstio(kubeconfig, namespace, kind)
		if err != nil {
			t.Fatal(err)
		}
		if served, err := api.find(t.Context()); err != nil || !served {
			t.Fatalf("%s: %v %v", kind.Kind, served, err)
		}
		spec := specs[kind.Kind]
		if spec == "" {
			spec = "{}"
		}
		c.Kubectl(t, fmt.Sprintf("{apiVersion: %s/%s, kind: %s, metadata: {name: one}, spec: %s}", kind.Group, api.at.Load().Version, kind.Kind, spec), "-n", namespace, "create", "-f", "-")
		key := Key{namespace, "one"}
		found, err := api.Get(t.Context(), key)
		if err != nil || found.Object == nil {
			t.Errorf("%s: %v %v", kind.Kind, found, err)
			continue
		}
		changed := found.Object.DeepCopy()
		changed.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": DeliveredType, "status": "True", "reason": "All", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
		if _, err := api.Write(t.Context(), key, changed); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		if again, err := api.Get(t.Context(), key); err != nil || says(again.Object, DeliveredType) != "True All" {
			t.Errorf("%s says %v, %v", kind.Kind, again.Object, err)
		}
	}
	entries, err := NewWorkloadEntries(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	if served, err := entries.entries.find(t.Context()); err != nil || !served {
		t.Fatalf("WorkloadEntry: %v %v", served, err)
	}
	if found, err := entries.Get(t.Context(), Key{namespace, "one"}); err != nil || found.Object == nil {
		t.Errorf("WorkloadEntry: %v %v", found, err)
	}
	roots, err := NewConfigMaps(kubeconfig, namespace, RootCertName)
	if err != nil {
		t.Fatal(err)
	}
	absent := map[string]func(context.Context, Key) (bool, error){"ConfigMap": func(ctx context.Context, k Key) (bool, error) {
		found, err := roots.Get(ctx, Key{namespace, RootCertName})
		return found.Object == nil, err
	}}
	for _, kind := range []WebhookKind{Mutating, Validating} {
		hooks, err := NewWebhooks(kubeconfig, kind)
		if err != nil {
			t.Fatal(err)
		}
		absent[string(kind)] = func(ctx context.Context, k Key) (bool, error) {
			found, err := hooks.Get(ctx, k)
			return found.Object == nil, err
		}
	}
	for kind, get := range absent {
		if missing, err := get(t.Context(), Key{Name: "istio-revision-tag-default"}); err != nil || !missing {
			t.Errorf("%s: %v %v", kind, missing, err)
		}
	}
}
