package inject

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the golden files want again")

// Pods with the layout of the chart's templates. A file has the Pod (pod.yaml), edits of configuration and values
// (edits: lines OLD => NEW), the path of the webhook, whether kubelets know sidecar containers (native), and the
// expected result (want.yaml).
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txtar")
	if err != nil || len(files) < 6 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]string{}
			for _, f := range archive.Files {
				part[f.Name] = string(f.Data)
			}
			var edits []string
			for line := range strings.Lines(part["edits"]) {
				old, replaced, _ := strings.Cut(strings.TrimSpace(line), " => ")
				edits = append(edits, old, replaced)
			}
			path, err := ParsePath(strings.TrimSpace(part["path"]))
			if part["path"] != "" && err != nil {
				t.Fatal(err)
			}
			_, native := part["native"]
			r := Request{Pod: podOf(t, part["pod.yaml"]), Namespace: "shop", Path: path, Native: native}
			got, err := yaml.Marshal(injectTwice(t, settings(t, edits...), r))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) == part["want.yaml"] {
				return
			}
			if !*update {
				t.Fatalf("not what %s wants; run go test -update and look at the difference. It is now\n%s", file, got)
			}
			for i := range archive.Files {
				if archive.Files[i].Name == "want.yaml" {
					archive.Files[i].Data = got
				}
			}
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// injectTwice injects a Pod, and checks every injection: the patch turns the sent Pod into the intended one; the same
// Pod yields the same patch again; injecting the injected Pod changes nothing.
func injectTwice(t testing.TB, s *Settings, r Request) *corev1.Pod {
	t.Helper()
	sent, err := json.Marshal(r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Inject(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal(r.Pod); string(after) != string(sent) {
		t.Errorf("the Pod that was given has changed:\n%s\n%s", sent, after)
	}
	patch, err := Patch(r.Pod, out)
	if err != nil {
		t.Fatal(err)
	}
	if patched := apply(t, sent, patch); !jsonpatch.Equal(patched, encoded(t, out)) {
		t.Errorf("the patch %s makes\n%s, want\n%s", patch, patched, encoded(t, out))
	}
	same, err := s.Inject(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if more, _ := Patch(r.Pod, same); string(more) != string(patch) {
		t.Errorf("two injections of the same Pod differ:\n%s\n%s", patch, more)
	}
	r.Pod = out
	again, err := s.Inject(t.Context(), r)
	if err != nil {
		t.Fatalf("injecting the injected Pod: %v", err)
	}
	if more, err := Patch(out, again); err != nil || more != nil {
		t.Errorf("injecting the injected Pod changes it: %s, %v", more, err)
	}
	return out
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	js, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func apply(t testing.TB, to, patch []byte) []byte {
	t.Helper()
	if patch == nil {
		return to
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%v: %s", err, patch)
	}
	out, err := p.Apply(to)
	if err != nil {
		t.Fatalf("the patch %s does not apply: %v", patch, err)
	}
	return out
}
