//go:build kube

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Every manifest is YAML of objects with a kind and a name, without remaining placeholders. The workloads differ.
func TestKubeManifests(t *testing.T) {
	keys, _, err := westKeys()
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{subset("v2"), keys}
	for _, name := range []string{"load", "shop", "routing", "gateway", "client", "stock", "wrong", "west"} {
		texts = append(texts, manifest(name))
	}
	for _, w := range workloads {
		texts = append(texts, w.manifest())
	}
	seen := manifestsOf(t, texts...)
	for _, want := range []string{"Deployment shop/reviews-v2", "ServiceAccount shop/web", "VirtualService shop/reviews", "Pod stock/caller", "Secret west/west"} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
	manifestsOf(t, manifest("west-objects", "THE-ADDRESS", "10.244.1.2"), manifest("west-token", "THE-TOKEN", "dA==", "THE-ROOT", "cg=="))
}

// manifestsOf returns the objects of manifests of one cluster. The test fails if an object is wrong, or occurs twice.
func manifestsOf(t *testing.T, texts ...string) (seen map[string]bool) {
	t.Helper()
	placeholder := regexp.MustCompile(`THE-(NAME|APP|VERSION|SUBSET|ADDRESS|TOKEN|ROOT)\b`)
	seen = map[string]bool{}
	for _, text := range texts {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
				Spec     any
			}
			if err := yaml.Unmarshal([]byte(document), &o); err != nil || o.Kind == "" || o.Metadata.Name == "" {
				t.Errorf("%v: kind %q, name %q in\n%s", err, o.Kind, o.Metadata.Name, document)
			}
			id := o.Kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
			for line := range strings.Lines(document) {
				if !strings.HasPrefix(line, "#") && placeholder.MatchString(line) {
					t.Errorf("%s: left to be replaced: %s", id, line)
				}
			}
		}
	}
	return seen
}

// A Pod with the layout of Istio's own agent has Istio's image, and only arguments that pilot-agent.sh knows.
func TestKubeStockPod(t *testing.T) {
	documents := strings.Split(manifest("stock"), "\n---\n")
	text, err := stock(documents[len(documents)-1])
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(text), &pod); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	agent := "#!/bin/sh\necho \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "navarch-agent"), []byte(agent), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var said []string
	for _, c := range pod.Spec.InitContainers {
		if !strings.HasPrefix(c.Image, "docker.io/istio/proxyv2:") {
			t.Errorf("%s has the image %s", c.Name, c.Image)
		}
		runs := [][]string{c.Args}
		if c.Lifecycle != nil {
			runs = append(runs, c.Lifecycle.PreStop.Exec.Command[1:])
		}
		for _, args := range runs {
			out, err := exec.Command("./pilot-agent.sh", args...).CombinedOutput()
			if err != nil {
				t.Errorf("%s %q: %v %s", c.Name, args, err, out)
			}
			said = append(said, strings.TrimSpace(string(out)))
		}
	}
	if len(said) != 3 || !strings.HasPrefix(said[0], "istio-iptables -p 15001 -z 15006 -u 1337 ") || said[1] != "run --envoy-log-level=warning --envoy-component-log-level=misc:error --log-level=info" || said[2] != "drain --stats-port=15020" {
		t.Errorf("navarch-agent is started with %q", said)
	}
	if out, err := exec.Command("./pilot-agent.sh", "proxy", "sidecar", "--other").CombinedOutput(); err == nil {
		t.Errorf("an argument that it does not know: %s", out)
	}
}

func TestKubeSum(t *testing.T) {
	page := "# TYPE navarch_proxies gauge\nnavarch_proxies{kind=\"sidecar\"} 3\nnavarch_proxies{kind=\"router\"} 1\nnavarch_proxies_other 7\nnavarch_leader 1\n"
	if got := sum(page, "navarch_proxies"); got != 4 {
		t.Errorf("navarch_proxies: %v, want 4", got)
	}
	if got := sum(page, "navarch_leader"); got != 1 {
		t.Errorf("navarch_leader: %v, want 1", got)
	}
}

// Only Pods that are ready and not being deleted are counted.
func TestKubeReadyPods(t *testing.T) {
	names, err := readyPods([]byte(`{"items": [
		{"metadata": {"name": "ready"}, "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "starts"}, "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}]}},
		{"metadata": {"name": "goes", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}`))
	if err != nil || !slices.Equal(names, []string{"ready"}) {
		t.Errorf("%v, %v", names, err)
	}
}
