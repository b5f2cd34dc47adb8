package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Documented gives navarchd the rights that deploy/docs/kubernetes.md lists, and a kubeconfig for somebody who has these alone: its service
// account, in namespace istio-system, which is made where it is not there.
func (c *ControlPlane) Documented(t testing.TB) (kubeconfig string) {
	t.Helper()
	rights := documented(t, "kind: ServiceAccount\n")
	c.Kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}", "apply", "-f", "-")
	c.Kubectl(t, rights, "apply", "-f", "-")
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

// Grant gives navarchd the rights beside those of Documented that the same page lists for who needs them: the first that have a word.
func (c *ControlPlane) Grant(t testing.TB, word string) {
	t.Helper()
	c.Kubectl(t, documented(t, word), "apply", "-f", "-")
}

// documented is the first YAML of the page that has a word.
func documented(t testing.TB, word string) string {
	t.Helper()
	tools, err := Tools()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(filepath.Dir(tools), "deploy", "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		if text, _, _ := strings.Cut(part, "```"); strings.Contains(text, word) {
			return text
		}
	}
	t.Fatalf("deploy/docs/kubernetes.md lists no rights to %s", word)
	return ""
}
