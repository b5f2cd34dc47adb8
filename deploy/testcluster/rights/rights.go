// Package rights gives navarchd the rights in a control plane of a test that the documentation lists, and no others. Its own test, after those that use them,
// says which of them nothing has used.
//
// Owns: the objects that it makes, until the control plane ends.  Reads: deploy/docs; what control planes have noted (controlplane.Used).  Never: is part of a
// program.
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

// page lists the rights.
const page = "kubernetes.md"

// Beginnings of the sentences before rights for who needs them (Grant).
const (
	ToSecrets = "The rights to Secrets of gateways"
	OfSigners = "The right to have [signers of Kubernetes]"
)

// Documented gives navarchd the rights that deploy/docs/kubernetes.md lists, and a kubeconfig for somebody who has these alone: its service
// account, in namespace istio-system, which is made where it is not there.
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

// Grant gives navarchd the rights beside those of Documented that the same page lists for who needs them, first after a text.
func Grant(t testing.TB, c *controlplane.ControlPlane, after string) {
	t.Helper()
	c.Kubectl(t, docs.YAML(t, page, after), "apply", "-f", "-")
}
