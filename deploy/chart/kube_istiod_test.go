//go:build kube

package chart

import (
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/deploy/testcluster/cluster"
)

// beside is Navarch as a revision of its own beside an istiod.
var beside = revision{"istiod-navarch", "navarch/navarch-agent:", []string{"istio-injection-", "istio.io/rev=navarch"}}

// istiodsNames are the objects of testdata/istiod.yaml.
var istiodsNames = []string{"serviceaccount/istiod", "configmap/istio", "configmap/istio-sidecar-injector", "service/istiod", "poddisruptionbudget/istiod", "horizontalpodautoscaler/istiod",
	"deployment/istiod", "clusterrole/istiod-clusterrole-istio-system", "mutatingwebhookconfiguration/istio-sidecar-injector",
	"validatingwebhookconfiguration/istio-validator-istio-system", "validatingwebhookconfiguration/istiod-default-validator"}

// istiod puts the cluster into the state that an istiod leaves, whose webhooks do not answer, and returns its root.
func (i *installation) istiod() (root string) {
	root = i.istiodsRoot()
	i.MustKubectl(i.t, "", "apply", "-f", "testdata/istiod.yaml")
	i.istiodAnswers()
	return root
}

// beside installs a revision beside an istiod without changing it: a namespace is moved to it and back.
func (i *installation) beside(root string) {
	was := i.versions()
	i.run("install", "beside", i.helm.Dir, "-f", "testdata/cluster.yaml",
		"--set", "revision=navarch,validation.default=false", "--wait", "--timeout=300s")
	if os.Geteuid() == 0 {
		i.joins(beside)
	}
	i.rootIs(root)
	i.MustKubectl(i.t, "", "label", "namespace", "shop", "istio.io/rev-", "istio-injection=enabled")
	i.istiodAnswers()
	i.run("uninstall", "beside", "--wait", "--timeout=180s")
	if now := i.versions(); now != was {
		i.t.Errorf("of istiod's there is now\n%s\nwas\n%s", now, was)
	}
}

// instead deletes istiod's Deployment. Objects that clients use stay and are adopted: the Service, the webhooks, the
// ConfigMaps, and the key encryption key of the release beside it.
func (i *installation) instead(values, wait string) {
	i.MustKubectl(i.t, "", "delete", "-n", "istio-system", "deployment/istiod", "horizontalpodautoscaler/istiod", "poddisruptionbudget/istiod", "--wait")
	i.run("install", "navarch", i.helm.Dir, "-f", values, "--take-ownership", "--force-conflicts", "--set", "promote=true", "--wait", wait)
}

// back restores istiod with its root, after Navarch was in its place.
func (i *installation) back(root string) {
	i.run("uninstall", "navarch", "--wait", "--timeout=180s")
	i.MustKubectl(i.t, "", "apply", "-f", "testdata/istiod.yaml") // helm install istiod
	i.istiodAnswers()
	i.rootIs(root)
	if secret := i.get("{.data.ca-cert\\.pem}", "secret", "-n", "istio-system", "istio-ca-secret"); len(secret) < 100 {
		i.t.Errorf("istiod's CA is gone: %s", secret)
	}
}

func (i *installation) rootIs(root string) {
	i.t.Helper()
	if now := i.root(); now != root {
		i.t.Errorf("the root is another one:\n%s\nwas\n%s", now, root)
	}
}

// istiodsRoot makes the root that istiod makes for itself, and puts it where istiod does.
func (i *installation) istiodsRoot() (root string) {
	t := i.t
	ca := newAuthority(t)
	root = string(ca.root)
	_, err := i.client.CoreV1().Secrets("istio-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "istio-ca-secret"}, Type: "istio.io/ca-root", Data: map[string][]byte{
		"ca-cert.pem": []byte(root), "ca-key.pem": encodeKey(t, ca.key), "cert-chain.pem": {}, "key.pem": {}, "root-cert.pem": {}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"shop", "istio-system"} {
		i.trusts(namespace, root)
	}
	return root
}

// trusts makes the workloads of a namespace trust a root, as a control plane with its own CA does.
func (i *installation) trusts(namespace, root string) {
	roots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "istio-ca-root-cert", Labels: map[string]string{"istio.io/config": "true"}}, Data: map[string]string{"root-cert.pem": root}}
	if _, err := i.client.CoreV1().ConfigMaps(namespace).Create(i.t.Context(), roots, metav1.CreateOptions{}); err != nil {
		i.t.Fatal(err)
	}
}

// istiodAnswers waits until Pods of the namespace shop cause calls of istiod's webhook, which does not answer here.
func (i *installation) istiodAnswers() {
	i.t.Helper()
	cluster.Await(i.t, "istiod's webhook", func() string {
		err := i.injected(i.t.Context())
		if err == nil || !strings.Contains(err.Error(), "namespace.sidecar-injector.istio.io") || !strings.Contains(err.Error(), "istiod.istio-system.svc:443") {
			return "a Pod is made by " + errorText(err)
		}
		return ""
	})
}

func errorText(err error) string {
	if err == nil {
		return "somebody else"
	}
	return err.Error()
}

// versions returns the resource versions of istiod's objects, except changes of their status.
func (i *installation) versions() string {
	var all []string
	for _, name := range istiodsNames {
		all = append(all, name+" "+i.get("{.metadata.uid} {.metadata.generation} {.metadata.labels} {.metadata.annotations} {.data} {.webhooks} {.spec}", "-n", "istio-system", name))
	}
	return strings.Join(all, "\n")
}
