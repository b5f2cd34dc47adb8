package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/admit/inject"
)

const manifests = `# The shop.
apiVersion: v1
kind: Service # stays as it is
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: web}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: node, namespace: shop}
spec:
  template: {spec: {hostNetwork: true, containers: [{name: app, image: web}]}}
`

func runCommand(t *testing.T, stdin string, args ...string) (out, errors string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := root()
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestInjectManifests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out, said, err := runCommand(t, manifests, "inject", "-f", "-")
	if err != nil || !strings.HasPrefix(said, "Job shop/node gets no proxy. The Pod has the network of its node") || strings.Count(said, "\n") != 1 {
		t.Fatalf("%v, %q", err, said)
	}
	parts := strings.Split(out, "---\n")
	given := strings.Split(manifests, "---\n")
	if len(parts) != 3 || parts[0] != given[0] || parts[2] != given[2] {
		t.Errorf("what is not injected has changed:\n%s", out)
	}
	for _, want := range []string{"image: navarch/navarch-agent:dev", "apis/apps/v1/namespaces/shop/deployments/web", "name: istio-init"} {
		if !strings.Contains(parts[1], want) {
			t.Errorf("%s is not in\n%s", want, parts[1])
		}
	}
	again, _, err := runCommand(t, out, "inject", "-f", "-")
	if err != nil || again != out {
		t.Errorf("injected again: %v\n%s", err, again)
	}
	native, _, err := runCommand(t, "", "inject", "-f", write("in.yaml", manifests), "--native-sidecars", "-o", filepath.Join(dir, "out.yaml"), "--values-file", write("values.yaml", strings.Replace(injection.Values(), "tag: dev", "tag: '2'", 1)),
		"--inject-config-file", write("config.yaml", injection.Config()), "--mesh-config-file", write("mesh.yaml", "defaultConfig: {proxyMetadata: {MINE: '1'}}"))
	written, _ := os.ReadFile(filepath.Join(dir, "out.yaml"))
	if text := string(written); err != nil || native != "" || !strings.Contains(text, "restartPolicy: Always") || !strings.Contains(text, "navarch-agent:2") || !strings.Contains(text, "name: MINE") {
		t.Errorf("%v:\n%s", err, text)
	}
	for _, c := range []struct{ in, want string }{
		{manifests + "---\napiVersion: v1\nkind: Pod\nspec: {containers: 5}\n", "-: document 4: Pod default/"},
		{"a: [", "-: document 1"},
	} {
		if out, _, err := runCommand(t, c.in, "inject", "-f", "-"); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%v, want %s; printed %q", err, c.want, out)
		}
	}
	if _, _, err := runCommand(t, manifests, "inject", "-f", "-", "--mesh-config-file", write("bad.yaml", "connectTimeout: 1")); err == nil {
		t.Error("a mesh configuration that cannot be read is taken")
	}
}

func TestInjectionWebhookIsPrinted(t *testing.T) {
	out, _, err := runCommand(t, "", "injection-webhook", "--revision", "canary", "--tag", "prod")
	got := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err != nil || yaml.UnmarshalStrict([]byte(out), got) != nil || got.Name != "istio-revision-tag-prod" || got.Labels["istio.io/rev"] != "canary" || got.Labels["istio.io/tag"] != "prod" ||
		got.Webhooks[0].ClientConfig.Service.Name != "istiod-canary" || strings.Contains(out, "null") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// played starts an API server with a namespace, a Pod and a Deployment in it, and the injection webhooks of two
// revisions.
func played(t *testing.T) (kubeconfig string, answers map[string]any) {
	t.Helper()
	object := func(text string) (out map[string]any) {
		if err := yaml.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	other := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "other.example.com"}}}
	answers = map[string]any{
		"/api/v1/namespaces/shop":                                           object("metadata: {name: shop, labels: {istio-injection: enabled}}"),
		"/api/v1/namespaces/shop/pods/web-0":                                object("metadata: {name: web-0, labels: {app: web}, annotations: {sidecar.istio.io/status: '{\"revision\": \"old\"}'}}"),
		"/apis/apps/v1/namespaces/shop/deployments/web":                     object("spec: {template: {metadata: {labels: {sidecar.istio.io/inject: 'false'}}}}"),
		"/apis/apps/v1/namespaces/shop/deployments/node":                    object("spec: {template: {spec: {hostNetwork: true}}}"),
		"/api/v1/namespaces/istio-system/configmaps/istio-sidecar-injector": map[string]any{"data": map[string]string{"config": injection.Config(), "values": injection.Values()}},
		"/api/v1/namespaces/istio-system/configmaps/istio":                  map[string]any{"data": map[string]string{"mesh": "trustDomain: shop.example"}},
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": map[string]any{"items": []any{
			inject.Webhooks{Namespace: "istio-system"}.Configuration(), inject.Webhooks{Namespace: "istio-system", Revision: "canary"}.Configuration(), other}},
	}
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, there := answers[r.URL.Path]
		if !there || r.Method != http.MethodGet {
			http.Error(w, `{"reason": "NotFound"}`, http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(api.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "x", "user": {"token": "ours"}}]}`, api.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, answers
}

func TestCheckInject(t *testing.T) {
	kubeconfig, answers := played(t)
	for _, c := range []struct{ args, want, not string }{
		{"web-0", "istio-sidecar-injector/namespace.sidecar-injector.istio.io       default    true    The labels of the namespace and the Pod match its selectors.", "other.example.com"},
		{"web-0", "istio-sidecar-injector-canary/rev.namespace.sidecar-injector.istio.io   canary     false   The webhook selects namespaces without the label istio-injection.", ""},
		{"pod/web-0", "The injector that istio-sidecar-injector names gives it a proxy. The Pod's labels and annotations do not decide, and the policy of ConfigMap istio-system/istio-sidecar-injector is enabled.\nIt was given a proxy when it was created: {\"revision\": \"old\"}", ""},
		{"deploy/web", "The webhook selects Pods without the label sidecar.istio.io/inject: false.", "gives it a"},
		{"deploy/web", "No webhook is asked: the Pod gets no proxy.", ""},
		{"deploy/node", "names gives it no proxy. The Pod has the network of its node", ""},
	} {
		out, _, err := runCommand(t, "", "check-inject", "--kubeconfig", kubeconfig, "-n", "shop", c.args)
		if squeezed := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(squeezed, strings.Join(strings.Fields(c.want), " ")) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %v\n%s\nwant %s", c.args, err, out, c.want)
		}
	}
	for args, want := range map[string]string{"absent": "Pod shop/absent: it does not exist", "deploy/absent": "Deployment shop/absent: it does not exist", "sts/web": "want a Pod, or deploy/NAME"} {
		if _, _, err := runCommand(t, "", "check-inject", "--kubeconfig", kubeconfig, "-n", "shop", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	out, _, err := runCommand(t, manifests, "inject", "-f", "-", "--from-cluster", "--kubeconfig", kubeconfig)
	if err != nil || !strings.Contains(out, "value: shop.example") {
		t.Errorf("%v:\n%s", err, out)
	}
	delete(answers, "/api/v1/namespaces/istio-system/configmaps/istio-sidecar-injector")
	if out, _, err := runCommand(t, "", "check-inject", "--kubeconfig", kubeconfig, "-n", "shop", "web-0"); err != nil || !strings.Contains(out, "Its decision is unknown") {
		t.Errorf("%v\n%s", err, out)
	}
}
