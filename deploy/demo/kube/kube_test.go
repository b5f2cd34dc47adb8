package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Every manifest is YAML of objects with a kind and a name, with nothing left to be replaced; the workloads differ.
func TestManifests(t *testing.T) {
	texts := []string{kek(), subset("v2")}
	for _, name := range []string{"etcd", "rights", "navarchd", "autoscaler", "load", "shop", "routing", "client"} {
		texts = append(texts, manifest(name))
	}
	for _, w := range workloads {
		texts = append(texts, w.manifest())
	}
	placeholder := regexp.MustCompile(`THE-|\b(NAME|APP|VERSION|SUBSET)\b`)
	seen := map[string]bool{}
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
	for _, want := range []string{"Secret istio-system/navarch-kek", "Deployment shop/reviews-v2", "ServiceAccount shop/web", "VirtualService shop/reviews"} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
}

// The rights are those that the documentation tells operators to give, word for word.
func TestRightsAreTheDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, _ := strings.Cut(manifest("rights"), "\n")
	if !strings.Contains(string(page), "```yaml\n"+rights+"```") {
		t.Error("manifests/rights.yaml is not what deploy/docs/kubernetes.md, Rights, has")
	}
}

func TestSum(t *testing.T) {
	page := "# TYPE navarch_proxies gauge\nnavarch_proxies{kind=\"sidecar\"} 3\nnavarch_proxies{kind=\"router\"} 1\nnavarch_proxies_other 7\nnavarch_leader 1\n"
	if got := sum(page, "navarch_proxies"); got != 4 {
		t.Errorf("navarch_proxies: %v, want 4", got)
	}
	if got := sum(page, "navarch_leader"); got != 1 {
		t.Errorf("navarch_leader: %v, want 1", got)
	}
}

// A Pod counts that is ready and not being deleted.
func TestReadyPods(t *testing.T) {
	names, err := readyPods([]byte(`{"items": [
		{"metadata": {"name": "ready"}, "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]}},
		{"metadata": {"name": "starts"}, "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}]}},
		{"metadata": {"name": "goes", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}`))
	if err != nil || !slices.Equal(names, []string{"ready"}) {
		t.Errorf("%v, %v", names, err)
	}
}
