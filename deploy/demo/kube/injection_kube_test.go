//go:build kube

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/loadtest/programs"
	"navarch.io/navarch/push/envoytest"
)

func TestMain(m *testing.M) {
	cluster.Init()
	os.Exit(m.Run())
}

// file is one of testdata.
func file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The whole chain with navarchd's own program, in a cluster whose nodes run Pods: a Pod is created in a namespace that asks for injection, the API server asks
// navarchd, whose certificate the leader has had it believe, and takes its patch; the kernel hands the Pod's traffic to Envoy, the agent gets a certificate for the Pod's
// identity, and Envoy its configuration. A Pod that is laid out for Istio's own agent joins, too.
func TestKubeInjectedPodsJoin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("sidecars run as a user of their own: it needs root")
	}
	local := map[string]string{"pilot-agent": "pilot-agent.sh", "envoy": envoytest.Binary(t)}
	for _, name := range []string{"navarchd", "navarchctl", "navarch-agent", "app"} {
		local[name] = programs.For(t, name)
	}
	images, err := table(local, map[string][]string{"navarchd": nil, "app": nil, "navarch-agent": {"envoy", "navarchctl"}, "pilot-agent": {"navarch-agent", "envoy", "navarchctl"}})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.ForTest(t, cluster.Options{Images: images, Istio: true, Nodes: 1})
	webhook, err := injector()
	if err != nil {
		t.Fatal(err)
	}
	namespaces := "{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}\n---\n" +
		"{apiVersion: v1, kind: Namespace, metadata: {name: stock}}"
	c.MustKubectl(t, strings.Join([]string{namespaces, manifest("rights"), webhook, file(t, "navarchd.yaml")}, "\n---\n"), "apply", "-f", "-")
	c.MustKubectl(t, "", "wait", "-n", "istio-system", "--for=condition=Ready", "pod/navarchd", "--timeout=120s")
	laidOut, err := stock(file(t, "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{cluster: c}
	if err := d.await(t.Context(), minute, d.asked); err != nil {
		t.Fatal(err)
	}
	for namespace, pod := range map[string]string{"shop": file(t, "web.yaml"), "stock": laidOut} {
		c.MustKubectl(t, pod, "apply", "-n", namespace, "-f", "-")
	}
	for namespace, want := range map[string]string{"shop": "navarch/navarch-agent:", "stock": "docker.io/istio/proxyv2:"} {
		if image := c.MustKubectl(t, "", "get", "-n", namespace, "pod", "web", "-o", `jsonpath={.spec.initContainers[?(@.name=="istio-proxy")].image}`); !strings.HasPrefix(image, want) {
			t.Errorf("the proxy of the Pod in %s has the image %q", namespace, image)
		}
		if out, err := c.Kubectl(t.Context(), "", "wait", "-n", namespace, "--for=condition=Ready", "pod/web", "--timeout=120s"); err != nil {
			logs, _ := c.Kubectl(t.Context(), "", "logs", "-n", namespace, "web", "--all-containers", "--tail=30")
			t.Fatalf("%v %s\n%s", err, out, logs)
		}
		secrets := c.MustKubectl(t, "", "exec", "-n", namespace, "web", "-c", "istio-proxy", "--", "navarchctl", "proxy-config", "secrets", "--envoy=127.0.0.1:15000", "-o", "json")
		if !strings.Contains(secrets, `"default"`) || !strings.Contains(secrets, "ROOTCA") {
			t.Errorf("the Envoy in %s has the Secrets %s", namespace, secrets)
		}
	}
	// What comes for the Pod goes through Envoy; it lets plain text in, as no policy forbids it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if page, err := c.Kubectl(ctx, "", "get", "--raw", "/api/v1/namespaces/shop/pods/web:9080/proxy/"); err != nil || !strings.Contains(page, "web") {
		t.Errorf("the application answers %q, %v", page, err)
	}
}
