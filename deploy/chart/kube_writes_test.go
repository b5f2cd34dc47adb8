//go:build kube

package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// writeTries are attempts with the token of role ingest, each after the results of the previous ones. A refusal is a
// part of the API server's message.
var writeTries = []struct{ name, verb, object, refused string }{
	{"roots", "create", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"}}`, ""},
	{"lists", "create", `{kind: ConfigMap, metadata: {name: istio-ca-crl}, data: {ca-crl.pem: "-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n"}}`, ""},
	{"another name", "create", `{kind: ConfigMap, metadata: {name: kube-root-ca.crt}, data: {ca.crt: "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"}}`, "navarchd writes the ConfigMaps istio-ca-root-cert and istio-ca-crl alone"},
	{"another name without data", "create", `{kind: ConfigMap, metadata: {name: settings}}`, "navarchd writes the ConfigMaps istio-ca-root-cert and istio-ca-crl alone"},
	{"no roots", "create", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert}, data: {root-cert.pem: "#!/bin/sh"}}`, "has to have certificates"},
	{"one more key", "create", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", more: x}}`, "changes no other key"},
	{"binary data", "create", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"}, binaryData: {more: MA==}}`, "changes no other key"},
	{"new roots", "update", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n"}}`, ""},
	{"roots beside what others have", "update", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: theirs}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n", theirs: x}, binaryData: {blob: MA==}}`, ""},
	{"what others have is lost", "update", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: theirs}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n"}}`, "changes no other key"},
	{"what others have is changed", "update", `{kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: theirs}, data: {root-cert.pem: "-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n", theirs: other}}`, "changes no other key"},
	{"a warning", "create", `{kind: Event, metadata: {name: a.1}, type: Warning, reason: Refused, reportingComponent: navarchd, source: {component: navarchd}, involvedObject: {kind: Pod, namespace: shop, name: a}}`, ""},
	{"somebody else's warning", "create", `{kind: Event, metadata: {name: a.2}, type: Warning, reason: Evicted, reportingComponent: kubelet, source: {component: kubelet}, involvedObject: {kind: Pod, namespace: shop, name: a}}`, "name navarchd as their reporter"},
	{"another's Event", "update", `{kind: Event, metadata: {name: b.1, namespace: theirs}, type: Warning, reason: Refused, reportingComponent: navarchd, involvedObject: {kind: Pod, namespace: theirs, name: b}}`, "name navarchd as their reporter"},
	{"a machine", "create", `{kind: WorkloadEntry, metadata: {name: vm, annotations: {istio.io/autoRegistrationGroup: vms}}, spec: {address: 192.0.2.1}}`, ""},
	{"no machine", "create", `{kind: WorkloadEntry, metadata: {name: web}, spec: {address: 192.0.2.1}}`, "machines that register themselves"},
	{"one by hand is connected", "update", `{kind: WorkloadEntry, metadata: {name: hand, namespace: theirs, annotations: {istio.io/connectedAt: now}}, spec: {address: 192.0.2.7}}`, ""},
	{"one by hand is moved", "update", `{kind: WorkloadEntry, metadata: {name: hand, namespace: theirs, annotations: {istio.io/autoRegistrationGroup: vms}}, spec: {address: 192.0.2.8}}`, "machines that register themselves"},
	{"one by hand is deleted", "delete", `{kind: WorkloadEntry, metadata: {name: hand, namespace: theirs}}`, "machines that register themselves"},
	{"a machine goes", "delete", `{kind: WorkloadEntry, metadata: {name: vm}}`, ""},
	{"another's webhooks", "update", `{kind: ValidatingWebhookConfiguration, metadata: {name: policy, namespace: ""}}`, "forbidden"},
	{"the mesh's webhooks", "update", `{kind: ValidatingWebhookConfiguration, metadata: {name: istiod-default-validator, namespace: ""}}`, ""},
}

// theirs are objects that were not made by navarchd.
const theirs = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-ca-root-cert, namespace: theirs}, data: {theirs: x}, binaryData: {blob: MA==}}
---
{apiVersion: v1, kind: Event, metadata: {name: b.1, namespace: theirs}, type: Warning, reason: Failed, reportingComponent: kubelet, involvedObject: {kind: Pod, namespace: theirs, name: b}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: hand, namespace: theirs}, spec: {address: 192.0.2.7}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: policy}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: istiod-default-validator}}
`

// The service account of role ingest may write navarchd's objects: roots and revocation lists, its own Warning Events,
// WorkloadEntries of machines, and the mesh's webhook configurations. The API server refuses all of its other writes of
// these kinds, and names the policy. Other accounts are not restricted.
// Promise: security-keys.md#the-power-of-each-key
func TestKubeChartWrites(t *testing.T) {
	t.Parallel()
	c := controlplane.Start(t, controlplane.Options{Istio: true})
	for _, namespace := range []string{"istio-system", "shop", "theirs"} {
		c.Kubectl(t, "", "create", "namespace", namespace)
	}
	var rules []string
	for _, u := range objects(t, template(t, "-f", "testdata/cluster.yaml", "--set", "injection.tags={prod}")) {
		if kind := u.GetKind(); strings.HasPrefix(kind, "ClusterRole") || strings.HasPrefix(u.GetName(), "navarch-writes-") {
			rules = append(rules, manifest(t, u.Object))
		}
	}
	c.Kubectl(t, theirs+"\n---\n"+strings.Join(rules, "\n---\n"), "apply", "-f", "-")
	config := rest.CopyConfig(c.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:istio-system:istiod-ingest", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	try := func(verb, text string, dryRun ...string) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		of := gvk.GroupVersionResource{Version: "v1", Resource: strings.ToLower(u.GetKind()) + "s"}
		switch u.GetKind() {
		case "WorkloadEntry":
			of.Group, of.Resource = "networking.istio.io", "workloadentries"
		case "ValidatingWebhookConfiguration":
			of.Group = "admissionregistration.k8s.io"
		}
		u.SetAPIVersion(of.GroupVersion().String())
		var in dynamic.ResourceInterface = client.Resource(of)
		if of.Group != "admissionregistration.k8s.io" {
			if u.GetNamespace() == "" {
				u.SetNamespace("shop")
			}
			in = client.Resource(of).Namespace(u.GetNamespace())
		}
		var err error
		switch verb {
		case "create":
			_, err = in.Create(t.Context(), u, metav1.CreateOptions{DryRun: dryRun})
		case "update":
			now, got := in.Get(t.Context(), u.GetName(), metav1.GetOptions{})
			if err = got; err == nil {
				u.SetResourceVersion(now.GetResourceVersion())
				_, err = in.Update(t.Context(), u, metav1.UpdateOptions{DryRun: dryRun})
			}
		default:
			err = in.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{DryRun: dryRun})
		}
		return err
	}
	for _, first := range []string{"another name", "somebody else's warning", "no machine"} {
		at := slices.IndexFunc(writeTries, func(w struct{ name, verb, object, refused string }) bool { return w.name == first })
		cluster.Await(t, "the policies", func() string { // an API server takes a moment to go by them
			if err := try("create", writeTries[at].object, metav1.DryRunAll); err == nil || !strings.Contains(err.Error(), writeTries[at].refused) {
				return fmt.Sprint(first, ": ", err)
			}
			return ""
		})
	}
	for _, w := range writeTries {
		switch err := try(w.verb, w.object); {
		case w.refused == "" && err != nil:
			t.Errorf("%s: %v", w.name, err)
		case w.refused != "" && (err == nil || !strings.Contains(err.Error(), w.refused)):
			t.Errorf("%s: %v, want a refusal: %s", w.name, err, w.refused)
		}
	}
	c.Kubectl(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}", "apply", "-f", "-")
	if off := template(t, "--set", "writePolicies=false"); strings.Contains(off, "navarch-writes") {
		t.Error("the policies are there though they are turned off")
	}
}
