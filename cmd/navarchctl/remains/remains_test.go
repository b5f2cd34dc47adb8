package remains

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// lists are the lists of an API server, by path.
var lists = map[string]string{
	"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": `{"items": [
		{"metadata": {"name": "istio-sidecar-injector", "uid": "1", "labels": {"istio.io/rev": "default", "app.kubernetes.io/name": "navarch"}}, "webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "istiod"}}}]},
		{"metadata": {"name": "istio-revision-tag-prod", "uid": "18", "labels": {"istio.io/rev": "default", "istio.io/tag": "prod"}}, "webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "istiod"}}}]},
		{"metadata": {"name": "istio-sidecar-injector-canary", "uid": "2", "labels": {"istio.io/rev": "canary"}}, "webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "istiod-canary"}}}]},
		{"metadata": {"name": "of-another-namespace", "uid": "3", "labels": {"istio.io/rev": "default"}}, "webhooks": [{"clientConfig": {"service": {"namespace": "other", "name": "istiod"}}}]},
		{"metadata": {"name": "of-others", "uid": "4"}, "webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "x"}}}]}]}`,
	"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": `{"items": [
		{"metadata": {"name": "istiod-default-validator", "uid": "5", "labels": {"istio.io/rev": "default"}}, "webhooks": [{"clientConfig": {"service": {"namespace": "istio-system", "name": "istiod"}}}]}]}`,
	"/api/v1/namespaces/istio-system/secrets": `{"items": [{"metadata": {"namespace": "istio-system", "name": "cacerts", "uid": "6"}}, {"metadata": {"namespace": "istio-system", "name": "navarch-etcd-client", "uid": "7"}},
		{"metadata": {"namespace": "istio-system", "name": "our-kek", "uid": "8", "labels": {"app.kubernetes.io/name": "navarch"}}}, {"metadata": {"namespace": "istio-system", "name": "of-others", "uid": "9"}}]}`,
	"/api/v1/namespaces/istio-system/persistentvolumeclaims": `{"items": [{"metadata": {"namespace": "istio-system", "name": "data-navarch-etcd-0", "uid": "10"}},
		{"metadata": {"namespace": "istio-system", "name": "navarch-etcd-snapshots", "uid": "11"}}, {"metadata": {"namespace": "istio-system", "name": "data-other-0", "uid": "12"}}]}`,
	"/api/v1/configmaps": `{"items": [{"metadata": {"namespace": "shop", "name": "istio-ca-root-cert", "uid": "13"}}, {"metadata": {"namespace": "shop", "name": "other", "uid": "14"}}]}`,
	"/apis/apps/v1/namespaces/istio-system/deployments": `{"items": [{"metadata": {"name": "istiod", "labels": {"app.kubernetes.io/instance": "mesh"}}, "spec": {"template": {"metadata": {"labels": {"app": "istiod"}}}}},
		{"metadata": {"name": "grafana"}, "spec": {"template": {"metadata": {"labels": {"app": "grafana"}}}}}]}`,
	"/apis/apps/v1/namespaces/istio-system/statefulsets": `{"items": [{"metadata": {"name": "navarch-etcd"}}]}`,
	crds + "virtualservices.networking.istio.io":         `{"metadata": {"name": "virtualservices.networking.istio.io", "uid": "15"}, "spec": {"versions": [{"name": "v1alpha2", "served": false}, {"name": "v1", "served": true}]}}`,
	crds + "sidecars.networking.istio.io":                `{"metadata": {"name": "sidecars.networking.istio.io", "uid": "16"}, "spec": {"versions": [{"name": "v1", "served": true}]}}`,
	crds + "telemetries.telemetry.istio.io":              `{"metadata": {"name": "telemetries.telemetry.istio.io", "uid": "17"}, "spec": {"versions": [{"name": "v1", "served": false}]}}`,
	"/apis/networking.istio.io/v1/virtualservices":       `{"metadata": {"remainingItemCount": 41}, "items": [{"metadata": {"name": "a"}}]}`,
	"/apis/networking.istio.io/v1/sidecars":              `{"items": []}`,
}

func names(all []Object) string {
	var list []string
	for _, o := range all {
		list = append(list, o.String()+" "+o.uid)
	}
	return strings.Join(list, ", ")
}

// Only objects of a control plane are deleted, in order, and only if they are those that were listed.
func TestRemains(t *testing.T) {
	var deleted []string
	c := Cluster{Namespace: "istio-system", API: apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			body, _ := io.ReadAll(r.Body)
			var options struct{ Preconditions struct{ UID string } }
			_ = json.Unmarshal(body, &options)
			deleted = append(deleted, r.URL.Path+" "+options.Preconditions.UID)
			switch {
			case strings.Contains(r.URL.Path, "cacerts"):
				w.WriteHeader(http.StatusNotFound) // deleted meanwhile
			case strings.Contains(r.URL.Path, "our-kek"):
				w.WriteHeader(http.StatusConflict) // created again meanwhile
				fmt.Fprint(w, `{"reason": "Conflict", "message": "the uid differs"}`)
			}
			fmt.Fprint(w, "{}")
			return
		}
		if lists[r.URL.Path] == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, lists[r.URL.Path])
	})}
	hooks, others, err := c.Webhooks(t.Context())
	if got := names(hooks); err != nil || got != "MutatingWebhookConfiguration istio-sidecar-injector 1, MutatingWebhookConfiguration istio-revision-tag-prod 18, ValidatingWebhookConfiguration istiod-default-validator 5" {
		t.Errorf("webhooks: %s %v", got, err)
	}
	const canarys = "MutatingWebhookConfiguration istio-sidecar-injector-canary 2"
	if got := names(others); got != canarys { // may be istiod's, in the same namespace
		t.Errorf("webhooks of others: %s", got)
	}
	canary := c
	canary.Revision = "canary"
	if of, _, err := canary.Webhooks(t.Context()); err != nil || names(of) != canarys {
		t.Errorf("webhooks of canary: %s %v", names(of), err)
	}
	kept, err := c.Kept(t.Context())
	if got := names(kept); err != nil || got != "Secret istio-system/cacerts 6, Secret istio-system/navarch-etcd-client 7, Secret istio-system/our-kek 8, "+
		"PersistentVolumeClaim istio-system/data-navarch-etcd-0 10, PersistentVolumeClaim istio-system/navarch-etcd-snapshots 11, ConfigMap shop/istio-ca-root-cert 13" {
		t.Errorf("kept: %s %v", got, err)
	}
	if !strings.Contains(kept[2].Holds, "key encryption key") || !strings.Contains(kept[1].Holds, "certificates") {
		t.Errorf("%+v", kept)
	}
	running, err := c.Running(t.Context())
	if got := strings.Join(running, ", "); err != nil || got != "Deployment istiod (release mesh), StatefulSet navarch-etcd" {
		t.Errorf("running: %s %v", got, err)
	}
	definitions, err := c.Definitions(t.Context())
	if got := names(definitions); err != nil || got != "CustomResourceDefinition sidecars.networking.istio.io 16, CustomResourceDefinition telemetries.telemetry.istio.io 17, CustomResourceDefinition virtualservices.networking.istio.io 15" {
		t.Fatalf("definitions: %s %v", got, err)
	}
	if !definitions[0].Empty() || definitions[1].Empty() || definitions[2].Empty() || definitions[2].Holds != "42 objects" {
		t.Errorf("%+v", definitions)
	}
	var gone []string
	err = c.Delete(t.Context(), slices.Concat(hooks[:1], kept[:1], kept[5:], kept[2:3], kept[3:4]), func(o Object) { gone = append(gone, o.Name) })
	if err == nil || !strings.Contains(err.Error(), "Secret istio-system/our-kek: ") || strings.Join(gone, " ") != "istio-sidecar-injector cacerts istio-ca-root-cert" {
		t.Errorf("gone %v, %v", gone, err)
	}
	want := []string{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-sidecar-injector 1", "/api/v1/namespaces/istio-system/secrets/cacerts 6",
		"/api/v1/namespaces/shop/configmaps/istio-ca-root-cert 13", "/api/v1/namespaces/istio-system/secrets/our-kek 8"}
	if !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q", deleted, want)
	}
}
