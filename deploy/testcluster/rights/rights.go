// Package rights gives navarchd the rights in a control plane of a test that the documentation lists, and no others.
//
// Owns: the objects that it makes, until the control plane ends.  Reads: deploy/docs.  Never: is part of a program.
package rights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	raw, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	as := "user:\n    as: system:serviceaccount:istio-system:navarchd\n    as-groups: [\"system:serviceaccounts\", \"system:authenticated\"]"
	if err := os.WriteFile(kubeconfig, []byte(strings.Replace(string(raw), "user:\n", as+"\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// Grant gives navarchd the rights beside those of Documented that the same page lists for who needs them, first after a text.
func Grant(t testing.TB, c *controlplane.ControlPlane, after string) {
	t.Helper()
	c.Kubectl(t, docs.YAML(t, page, after), "apply", "-f", "-")
}
