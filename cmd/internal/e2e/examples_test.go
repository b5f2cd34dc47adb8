package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/xds"
)

// reading are the commands that read a control plane, a folder, or nothing. Examples of the others are only parsed, by
// a test of navarchctl.
var reading = []string{"proxy-status", "proxy-config", "proxy-config all", "proxy-config cluster",
	"proxy-config listener", "proxy-config route", "proxy-config endpoint", "proxy-config secret", "proxy-config extension",
	"explain", "why", "describe", "authz check", "authz", "who-can", "test", "patches", "problems", "leader", "version", "removals list",
	"plan", "analyze", "render", "check", "wait",
	"ca status", "ca roots", "store roles", "token create"}

// elsewhere matches examples that need a cluster, an Envoy or a file of the reader's, do not end, or act.
var elsewhere = regexp.MustCompile(`--context|--revision [a-z]|--kubeconfig|kubectl|deploy/web|--envoy|--etcd-endpoints|` +
	`--watch|curl|` +
	`--live|change\.yaml|web\.json|helm|\| sh|ca rotate|` +
	`--from web-5d4f8c7b9-aaaaa.shop --to`) // proxies without a token have no verified service account

// inClusters matches whole commands of the above that need a cluster.
var inClusters = regexp.MustCompile(`^navarchctl (analyze|analyze (-n shop|--proxy-bytes.*|--expires.*|--suppress .*)|` +
	`check|check --(pre|for-upgrade).*)$`)

// demoPod reads the first Pod of a file of the demo.
func demoPod(t *testing.T, file string) (pod corev1.Pod) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if err := yaml.Unmarshal([]byte(document), &pod); err != nil {
			t.Fatal(err)
		}
		if pod.Kind == "Pod" {
			return pod
		}
	}
	t.Fatalf("%s has no Pod", file)
	return pod
}

// joins connects a proxy of a Pod until the test ends, which has and acknowledges everything.
func joins(t *testing.T, address string, pod corev1.Pod) {
	t.Helper()
	n := node(pod.Namespace, pod.Spec.ServiceAccountName, pod.Status.PodIP)
	n.Id = fmt.Sprintf("sidecar~%s~%s.%s~%[3]s.svc.cluster.local", pod.Status.PodIP, pod.Name, pod.Namespace)
	n.Metadata.Fields["NAME"] = structpb.NewStringValue(pod.Name)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a, done := asking{stream: stream, node: n, got: map[string][]byte{}}, make(chan struct{})
	if err := a.everything(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		_, _ = a.receive(xds.Unknown, 1) // until the stream ends
	}()
	t.Cleanup(func() { cancel(); <-done; conn.Close() })
}

// examplesOf returns the examples in a command's help.
func examplesOf(t *testing.T, command string) (lines []string) {
	t.Helper()
	out, err := exec.Command(binary(t, "navarchctl"), append(strings.Fields(command), "--help")...).Output()
	if err != nil {
		t.Fatalf("navarchctl %s --help: %v", command, err)
	}
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(string(out), "\\\n", "")) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " "):
			section = line
		case section == "Examples:" && strings.Contains(line, "navarchctl ") && !strings.HasPrefix(strings.TrimSpace(line), "#"):
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// The examples in the help of commands that read run in the top folder of a clone, against the mesh of the demo. They
// need no flag for its address.
// Promise: commands.md#examples
func TestExamplesRunAgainstTheDemo(t *testing.T) {
	parallel(t)
	top, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	shop, data, work, bin := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.CopyFS(shop, os.DirFS(filepath.Join(top, "deploy/demo/shop"))); err != nil {
		t.Fatal(err)
	}
	d := start(t, "--config-dir", shop, "--data-dir", data)
	eventually(t, patience, d.ready)
	joins(t, d.grpc, demoPod(t, filepath.Join(shop, "web.yaml")))
	joins(t, d.grpc, demoPod(t, filepath.Join(shop, "catalog.yaml")))
	dump, err := get(d.http, "/debug/config_dump?proxyID=web-5d4f8c7b9-aaaaa.shop")
	err = errors.Join(err, os.WriteFile(filepath.Join(work, "dump.json"), []byte(dump), 0o600),
		os.MkdirAll(filepath.Join(work, "out/demo"), 0o700), os.Symlink(data, filepath.Join(work, "out/demo/data")),
		os.Symlink(filepath.Join(top, "deploy"), filepath.Join(work, "deploy")),
		os.Symlink(binary(t, "navarchctl"), filepath.Join(bin, "navarchctl")))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, command := range append([]string{""}, reading...) {
		lines := examplesOf(t, command)
		some := false
		for _, line := range lines {
			if elsewhere.MatchString(line) || inClusters.MatchString(line) {
				continue
			}
			run := exec.Command("sh", "-c", strings.ReplaceAll(line, "127.0.0.1:8080", d.http))
			run.Dir, run.Env = work, []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + work, "NAVARCH_SERVER=" + d.http}
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) { // 2: what the command found
				t.Errorf("%s: %v\n%.2000s", line, err, out)
			}
			some = true
			ran++
		}
		if !some {
			t.Errorf("no example of navarchctl %s was run", command)
		}
	}
	if ran < 60 {
		t.Errorf("%d examples were run", ran)
	}
}
