//go:build kube

package check_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/check"
	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/store/programs"
)

func TestMain(m *testing.M) {
	cluster.Init()
	os.Exit(m.Run())
}

const controlPlane = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system}
spec:
  selector: {matchLabels: {app: istiod}}
  template:
    metadata: {labels: {app: istiod, istio.io/rev: default}}
    spec:
      serviceAccountName: navarchd
      terminationGracePeriodSeconds: 5
      containers:
      - name: navarchd
        image: navarchd
        args: [--registries=Kubernetes, --data-dir=/data, --shutdown-duration=1s]
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec: {selector: {app: istiod}, ports: [{name: https-dns, port: 15012}, {name: https-webhooks, port: 443, targetPort: 15017}]}
`

// installed installs the rights and the validation webhook of deploy/docs, the injector's ConfigMap, and one replica
// with its own etcd.
func installed(t *testing.T) string {
	t.Helper()
	rights, hooks := docs.YAML(t, "kubernetes.md", "\n## Rights\n"), docs.YAML(t, "validation.md", "# ")
	injector, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "istio-sidecar-injector", "namespace": "istio-system"},
		"data": map[string]string{"config": injection.Config(), "values": injection.Values()}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join([]string{"{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}", rights, hooks, string(injector), controlPlane}, "\n---\n")
}

// ctl runs navarchctl, and returns its output.
func ctl(t *testing.T, c *cluster.Cluster, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), programs.For(t, "navarchctl"), append(args, "--kubeconfig", c.Kubeconfig())...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("navarchctl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), err
}

// lines runs the checks, and returns their results.
func lines(t *testing.T, c *cluster.Cluster) (all []check.Result, err error) {
	t.Helper()
	out, err := ctl(t, c, "check", "-o", "json")
	if wrong := json.Unmarshal([]byte(out), &all); wrong != nil {
		t.Fatalf("%v %v\n%s", wrong, err, out)
	}
	return all, err
}

// navarchd in a Pod of a cluster of processes: navarchctl finds it through the API server. check reports no fault,
// including a real CSR and ADS join, and names a webhook without a server. Tags are set and listed, and uninstall
// deletes a revision's webhooks.
func TestKubeCheck(t *testing.T) {
	navarchd := programs.For(t, "navarchd")
	c := cluster.ForTest(t, cluster.Options{Nodes: 1, Istio: true,
		Images: image.Table{"navarchd": {Programs: map[string]string{"/usr/local/bin/navarchd": navarchd}, Entrypoint: []string{"/usr/local/bin/navarchd"}}}})
	if out, err := ctl(t, c, "check", "--pre"); err != nil {
		t.Errorf("before: %v\n%s", err, out)
	}
	c.MustKubectl(t, installed(t), "apply", "-f", "-")
	hook, err := exec.CommandContext(t.Context(), programs.For(t, "navarchctl"), "injection-webhook").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.MustKubectl(t, string(hook), "apply", "-f", "-")
	c.MustKubectl(t, "", "rollout", "status", "-n", "istio-system", "deploy/istiod", "--timeout=120s")
	cluster.Await(t, "all is well", func() string {
		all, err := lines(t, c)
		if err != nil {
			return fmt.Sprint(err, all)
		}
		for _, r := range all {
			if r.Status != check.OK && !strings.Contains(r.Found, "failurePolicy Ignore") { // until the dry run
				return fmt.Sprint(r)
			}
		}
		if len(all) < 12 {
			return fmt.Sprint(all)
		}
		return ""
	})
	if out, err := ctl(t, c, "proxy-status"); err != nil || !strings.HasPrefix(out, "0 proxies: ") {
		t.Errorf("proxy-status: %v\n%s", err, out)
	}
	if out, err := ctl(t, c, "version", "--short", "--revision", "default"); err != nil || !strings.Contains(out, "Pod istio-system/istiod-") {
		t.Errorf("version: %v\n%s", err, out)
	}
	if _, err := ctl(t, c, "ps", "--revision", "none"); err == nil || !strings.Contains(err.Error(), "Pods with the labels app=istiod,istio.io/rev=none: no such Pod") {
		t.Errorf("another revision: %v", err)
	}
	tagged(t, c)
	analyzed(t, c)
	c.MustKubectl(t, "", "patch", "mutatingwebhookconfiguration", "istio-sidecar-injector", "--type=json", "-p", `[{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "nobody"}]`)
	all, err := lines(t, c)
	named := false
	for _, r := range all {
		named = named || r.Status == check.Failure && strings.Contains(r.Check, "istio-sidecar-injector") && strings.Contains(r.Found, "Service istio-system/nobody")
	}
	if err == nil || !named {
		t.Errorf("a webhook that leads nowhere: %v %+v", err, all)
	}
	if _, err := ctl(t, c, "uninstall", "--purge", "--yes"); err == nil || !strings.Contains(err.Error(), "runs still: Deployment istiod") {
		t.Errorf("--purge while the control plane runs: %v", err)
	}
	uninstalled(t, c)
}

// analyzed runs analyze: it reads the API server's objects, and finds a route to a Service without Pods. A workload of
// a file over the cluster mends the route.
func analyzed(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.MustKubectl(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}}
`, "apply", "-f", "-")
	out, err := ctl(t, c, "analyze", "--fail-threshold", "error")
	if err != nil || !strings.Contains(out, "Warning [NAV1001] (VirtualService shop/web) spec.http[0].route[0].destination.host: ") || strings.Contains(out, "IST0139") {
		t.Errorf("analyze: %v\n%s", err, out)
	}
	file := t.TempDir() + "/web.yaml"
	if err := os.WriteFile(file, []byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := ctl(t, c, "analyze", "-n", "shop", "-f", file, "--live", "--fail-threshold", "warning"); err != nil {
		t.Errorf("with the workload: %v\n%s", err, out)
	}
	if out, err := ctl(t, c, "analyze", "-f", file, "--new"); err != nil || out != "No findings.\n" {
		t.Errorf("the workload adds: %v\n%s", err, out)
	}
}

// uninstalled runs uninstall: webhooks that no chart made, as these, stay unless their revision is named.
func uninstalled(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if out, err := ctl(t, c, "uninstall", "--yes"); err != nil || !strings.Contains(out, "There is nothing to delete") {
		t.Errorf("uninstall: %v\n%s", err, out)
	}
	if out, err := ctl(t, c, "uninstall", "--yes", "--revision", "default"); err != nil || !strings.Contains(out, "deleted ValidatingWebhookConfiguration istiod-default-validator") {
		t.Errorf("uninstall --revision default: %v\n%s", err, out)
	}
	if left := c.MustKubectl(t, "", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
	if left := c.MustKubectl(t, "", "get", "crd", "virtualservices.networking.istio.io", "-o", "name"); left == "" {
		t.Error("definitions are gone")
	}
}

// tagged sets a tag: the leader keeps its roots, as those of the revision.
func tagged(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if out, err := ctl(t, c, "tag", "set", "prod", "--revision", "default"); err != nil {
		t.Errorf("tag set: %v\n%s", err, out)
	}
	c.MustKubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio.io/rev: prod}}}", "apply", "-f", "-")
	if out, err := ctl(t, c, "tag", "list"); err != nil || !strings.Contains(out, "prod   default    shop") {
		t.Errorf("tag list: %v\n%s", err, out)
	}
	if _, err := ctl(t, c, "tag", "set", "prod", "--revision", "canary", "--overwrite"); err == nil || !strings.Contains(err.Error(), `revision "canary" has no MutatingWebhookConfiguration`) {
		t.Errorf("a tag of a revision that is not there: %v", err)
	}
	bundle := func(name string) string {
		return c.MustKubectl(t, "", "get", "mutatingwebhookconfiguration", name, "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
	}
	if got, want := bundle("istio-revision-tag-prod"), bundle("istio-sidecar-injector"); got == "" || got != want {
		t.Errorf("caBundle %.40q, want %.40q", got, want)
	}
	if out, err := ctl(t, c, "tag", "remove", "prod", "--yes"); err != nil || !strings.Contains(out, "tag prod is removed") {
		t.Errorf("tag remove: %v\n%s", err, out)
	}
}
