//go:build kube

package chart

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// revision describes one revision of the mesh, by what Pods and operators see.
type revision struct {
	app   string // the Deployment that serves its proxies
	image string // of the proxies that it injects
	label []string
}

var (
	own    = revision{"istiod", "navarch/navarch-agent:", []string{"istio.io/rev-", "istio-injection=enabled"}}
	canary = revision{"istiod-canary", "docker.io/istio/proxyv2:", []string{"istio-injection-", "istio.io/rev=canary"}}
)

// revisions installs a second revision beside the first, promotes it, and moves the namespace shop to it, and back. Its
// Pod joins the mesh each time: admission injects a proxy, the kernel redirects its traffic, the agent gets a
// certificate, and Envoy its configuration. The canary's values use the layout of Istio's own agent.
func (i *installation) revisions(root string) {
	t := i.t
	if os.Geteuid() != 0 {
		t.Log("not root: sidecars, which run as a user of their own, are left out")
		return
	}
	i.joins(own)
	i.run("install", "canary", i.helm.Dir, "-f", "testdata/canary.yaml", "--wait", "--timeout=300s")
	i.promoted(canary)
	i.joins(canary)
	if now := i.root(); now != root {
		t.Errorf("the root is another one:\n%s\nwas\n%s", now, root)
	}
	i.joins(own)
	i.noneForbidden(canary.app)
	i.run("uninstall", "canary", "--wait", "--timeout=180s")
}

// promoted waits until a revision is the one that writes to Kubernetes, and no other is.
func (i *installation) promoted(r revision) {
	cluster.Await(i.t, r.app+" is promoted", func() string {
		by := ""
		for _, pod := range strings.Fields(i.get("{.items[*].metadata.name}", "pods", "-n", "istio-system", "-l", "app.kubernetes.io/name=navarchd")) {
			if strings.Contains(i.page("istio-system", pod), "\nnavarch_promoted 1\n") {
				by += pod + " "
			}
		}
		if !strings.HasPrefix(by, r.app+"-") || strings.Count(by, " ") != 1 {
			return "promoted are " + by
		}
		return ""
	})
	i.at(r.app + " is promoted")
}

// page returns the metrics page of a Pod of navarchd; empty: it does not answer.
func (i *installation) page(namespace, pod string) string {
	page, _ := i.Kubectl(context.Background(), "", "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+":15014/proxy/metrics")
	return page
}

// joins moves the namespace to a revision, makes its Pod again, and waits until that is one of the mesh, by that
// revision.
func (i *installation) joins(r revision) {
	t := i.t
	t.Helper()
	i.MustKubectl(t, "", append([]string{"label", "namespace", "shop", "--overwrite"}, r.label...)...)
	cluster.Await(t, "admission by "+r.app, func() string { // API servers learn of a label a moment later
		out, err := i.Kubectl(t.Context(), "", "run", "probe", "-n", "shop", "--image=app", "--dry-run=server", "-o", "jsonpath={.spec.initContainers[*].image}")
		if err != nil || !strings.Contains(out, r.image) {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	i.MustKubectl(t, "", "delete", "pod", "-n", "shop", "web", "--ignore-not-found", "--wait")
	i.MustKubectl(t, "", "apply", "-f", "testdata/web.yaml")
	if out, err := i.Kubectl(t.Context(), "", "wait", "-n", "shop", "--for=condition=Ready", "pod/web", "--timeout=300s"); err != nil {
		logs, _ := i.Kubectl(t.Context(), "", "logs", "-n", "shop", "web", "--all-containers", "--tail=30")
		t.Fatalf("%v %s\n%s", err, out, logs)
	}
	if image := i.get(`{.spec.initContainers[?(@.name=="istio-proxy")].image}`, "pod", "-n", "shop", "web"); !strings.HasPrefix(image, r.image) {
		t.Errorf("the proxy has the image %s, want %s", image, r.image)
	}
	secrets := i.MustKubectl(t, "", "exec", "-n", "shop", "web", "-c", "istio-proxy", "--", "navarchctl", "proxy-config", "secrets", "--envoy=127.0.0.1:15000", "-o", "json")
	if !strings.Contains(secrets, `"default"`) || !strings.Contains(secrets, "ROOTCA") {
		t.Errorf("Envoy has the Secrets %s", secrets)
	}
	// Connections to the Pod go through Envoy, which accepts plain text, because no policy forbids it.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if page, err := i.Kubectl(ctx, "", "get", "--raw", "/api/v1/namespaces/shop/pods/web:9080/proxy/"); err != nil || !strings.Contains(page, "web") {
		t.Errorf("the application answers %q, %v", page, err)
	}
	i.counts("destination", "web")
	if served := i.serves(r.app); served != 1 {
		t.Errorf("%s serves %d proxies, want the one of the Pod", r.app, served)
	}
	i.at("the Pod is of " + r.app)
}

// counts waits until the page of the Pod web that Prometheus scrapes has Istio's metric of requests, which the chart's
// mesh configuration enables.
func (i *installation) counts(reporter, workload string) {
	i.t.Helper()
	cluster.Await(i.t, "istio_requests_total", func() string {
		page, err := i.Kubectl(i.t.Context(), "", "get", "--raw", "/api/v1/namespaces/shop/pods/web:15020/proxy/stats/prometheus")
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "istio_requests_total{") && strings.Contains(line, `reporter="`+reporter+`"`) && strings.Contains(line, `destination_workload="`+workload+`"`) {
				return ""
			}
		}
		return fmt.Sprintf("%v: no such line in %d bytes", err, len(page))
	})
}

// serves returns the number of proxies of a Deployment's Pods.
func (i *installation) serves(app string) (n int) {
	for _, pod := range strings.Fields(i.get("{.items[*].metadata.name}", "pods", "-n", "istio-system", "-l", "navarch.io/deployment="+app)) {
		_, value, _ := strings.Cut(i.page("istio-system", pod), "\nnavarch_proxies ")
		one := 0
		if _, err := fmt.Sscan(value, &one); err != nil {
			i.t.Errorf("%s has no number of proxies: %v", pod, err)
		}
		n += one
	}
	return n
}

// webIn returns the Pod web in a namespace, as its author writes it.
func webIn(t *testing.T, namespace string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "namespace: shop", "namespace: "+namespace)
}
