//go:build kube

package status

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// With the documented rights, and no others: the ConfigMap comes, is put back when it is edited or deleted, follows a rotation, and takes the
// place of one that somebody else made. One that may not be changed (immutable) is a problem that names it.
func TestKubeRootCerts(t *testing.T) {
	c := controlplane.Shared(t)
	api, err := NewConfigMaps(c.Documented(t), RootCertName)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Deadline: time.Second, Log: slog.New(slog.DiscardHandler),
		Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, 7) }()
	defer func() { cancel(); <-ended }()

	a, b, fixed := c.Namespace(t), c.Namespace(t), c.Namespace(t)
	c.Kubectl(t, "", "-n", b, "create", "configmap", RootCertName, "--from-literal=more=stays")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert"}, "immutable": true}`, "-n", fixed, "create", "-f", "-")
	has := func(namespace, roots string) {
		t.Helper()
		got := ""
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			got = c.Kubectl(t, "", "-n", namespace, "get", "configmap", RootCertName, "--ignore-not-found", "-o",
				`jsonpath={.data.root-cert\.pem} {.metadata.labels.istio\.io/config} {.metadata.annotations.navarch\.io/epoch}`)
			if got == roots+" true 7" {
				return
			}
		}
		t.Fatalf("%s has %q, want %q; problems: %v", namespace, got, roots, w.Problems())
	}
	w.Want(RootCerts([]string{a, b, fixed}, "one"))
	has(a, "one")
	has(b, "one")
	if got := c.Kubectl(t, "", "-n", b, "get", "configmap", RootCertName, "-o", "jsonpath={.data.more}"); got != "stays" {
		t.Errorf("what else was in it is %q", got)
	}
	w.Want(RootCerts([]string{a, b, fixed}, "one two"))
	has(a, "one two")
	c.Kubectl(t, "", "-n", a, "patch", "configmap", RootCertName, "-p", `{"data": {"root-cert.pem": "evil"}}`)
	has(a, "one two")
	c.Kubectl(t, "", "-n", a, "delete", "configmap", RootCertName)
	has(a, "one two")
	if p := fmt.Sprint(w.Problems()); !strings.Contains(p, fixed+"/"+RootCertName) || strings.Contains(p, a+"/") {
		t.Errorf("problems: %s", p)
	}
}
