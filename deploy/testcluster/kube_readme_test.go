//go:build kube

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/programs"
)

func TestMain(m *testing.M) {
	cluster.Init()
	os.Exit(m.Run())
}

// installLines finds the block of README.md that installs Navarch.
var installLines = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The lines of README.md install the chart with its own values in a cluster with the images of `make cluster`, and lead
// to an application with sidecars whose requests go from proxy to proxy. Levels of log lines change in that control
// plane.
func TestKubeReadme(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("sidecars run as a user of their own, which needs root")
	}
	for _, needed := range []string{"curl", "make"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := installLines.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d blocks of sh", len(blocks))
	}
	dir := checkout(t)
	shell(t, dir, "", "make chart")
	table, err := images(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.ForTest(t, cluster.Options{Images: table, Istio: true, GatewayAPI: true})
	out := shell(t, dir, c.Kubeconfig(), blocks[0][1])
	for _, want := range []string{`"name":"web"`, "URI=spiffe://cluster.local/ns/shop/sa/default", "SYNCED   SYNCED   SYNCED   SYNCED", "the CA takes the token and can sign", `istio_requests_total{reporter="source"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	out = strings.Join(strings.Fields(shell(t, dir, c.Kubeconfig(), "bin/navarchctl log deploy/istiod --level ads:debug")), " ")
	if !strings.Contains(out, "ads debug") || !strings.Contains(out, "ca info") {
		t.Errorf("levels are %s", out)
	}
}

// checkout creates a folder like that of the repository after `make cluster` has built the programs.
func checkout(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := programs.Etcd()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"bin/etcd": etcd}
	for _, name := range []string{"navarchd", "navarchctl", "navarch-agent", "app"} {
		links["bin/"+name] = programs.For(t, name)
	}
	for _, name := range []string{".tools", "Makefile", "deploy", "go.mod", "go.sum"} {
		links[name] = filepath.Join(top, name)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	envoytest.Binary(t)
	return dir
}

// shell runs lines in a folder, and returns their output; each must succeed.
func shell(t *testing.T, dir, kubeconfig, lines string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", lines)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+dir, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, &wrong)
	}
	return out.String()
}
