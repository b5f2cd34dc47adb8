// Package rights grants navarchd, in a control plane of a test, exactly the rights that the documentation lists. Its
// own test runs after the tests that use them, and reports unused rights.
//
// Owns: the objects that it creates, until the control plane ends. Reads: deploy/docs; the recorded rights of control
// planes (controlplane.Used). Never: is part of a program.
package rights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// page is the page that lists the rights.
const page = "kubernetes.md"

// Beginnings of the sentences before optional rights (Grant).
const (
	ToSecrets = "The rights to Secrets of gateways"
	OfSigners = "The right to have [signers of Kubernetes]"
)

// Documented grants the rights that deploy/docs/kubernetes.md lists to navarchd's service account in namespace
// istio-system, and creates the namespace if necessary. It returns the path of a kubeconfig of that account.
func Documented(t testing.TB, c *controlplane.ControlPlane) (kubeconfig string) {
	t.Helper()
	c.Kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}", "apply", "-f", "-")
	c.Kubectl(t, docs.YAML(t, page, "\n## Rights\n"), "apply", "-f", "-")
	return As(t, c, "navarchd")
}

// As returns the path of a kubeconfig for a service account in namespace istio-system.
func As(t testing.TB, c *controlplane.ControlPlane, account string) string {
	t.Helper()
	raw, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(c.Kubectl(t, "", "create", "token", account, "-n", "istio-system", "--duration=24h"))
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// Grant adds optional rights of the same page: those of the first list after a text.
func Grant(t testing.TB, c *controlplane.ControlPlane, after string) {
	t.Helper()
	c.Kubectl(t, docs.YAML(t, page, after), "apply", "-f", "-")
}
