package validate

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"navarch.io/navarch/push/build/patch"
	_ "navarch.io/navarch/push/build/patch/envoytypes" // which patches may name
	istio "navarch.io/navarch/store/admit/schema"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"

	meshv1 "istio.io/api/mesh/v1alpha1"
	kjson "sigs.k8s.io/json"
)

// judged is one object of testdata/validation.json.gz: 150 objects of Istio's kinds and mutations of them. Schema is
// the result of a real API server with Istio's definitions (structure, CEL, unknown fields). Semantic is the result of
// istiod's validation for objects that pass Schema.
type judged struct {
	Mutation, What string
	Object         json.RawMessage
	Schema         bool
	Semantic       *bool
}

// name distinguishes the objects.
func (j *judged) name() string {
	var of metav1.PartialObjectMetadata
	if err := json.Unmarshal(j.Object, &of); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s", of.Kind, j.Mutation, j.What)
}

// taken reports whether Istio admits the object.
func (j *judged) taken() bool { return j.Schema && j.Semantic != nil && *j.Semantic }

func corpus(t testing.TB) (all []*judged) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "validation.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// creation is the request by which an object is made.
func creation(t testing.TB, raw []byte) *admissionv1.AdmissionRequest {
	t.Helper()
	var of metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &of); err != nil {
		t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	r := &admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version,
		Kind: of.Kind}, Name: of.Name, Namespace: of.Namespace,
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}
	if d := istio.Of(gv.Group, gv.Version, of.Kind); d != nil {
		r.Resource = metav1.GroupVersionResource{Group: gv.Group, Version: gv.Version, Resource: d.Plural}
	}
	return r
}

// webhook knows nothing of a mesh.
func webhook() *Webhook {
	return over(nil)
}

// over knows a snapshot; nil: nothing. Values of EnvoyFilters are judged as in navarchd.
func over(s *mirror.Snapshot) *Webhook {
	mesh := func() *meshv1.MeshConfig {
		if s == nil {
			return nil
		}
		return s.Mesh().Spec
	}
	return New(normal.New(normal.Options{}), mesh, func() *mirror.Snapshot { return s }, nil, func(r model.Record,
		_ *mirror.Snapshot) (refused, warned []error) {
		if f, is := r.(*model.EnvoyFilter); is {
			return patch.Validate(f)
		}
		return nil, nil
	})
}

// admits reports whether an API server with Istio's definitions and our webhook admits an object, or the reason of the
// refusal.
func admits(t testing.TB, w *Webhook, raw []byte) (bool, string) {
	t.Helper()
	r := creation(t, raw)
	object := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		t.Fatal(err)
	}
	d := istio.Of(r.Kind.Group, r.Kind.Version, r.Kind.Kind)
	wrong, unknown := d.Check(t.Context(), object), d.Unknown(object)
	if len(wrong)+len(unknown) > 0 {
		return false, fmt.Sprint("schema: ", wrong, unknown)
	}
	answer := w.Admit(t.Context(), Path, r)
	if !answer.Allowed {
		return false, answer.Result.Message
	}
	return true, ""
}

// The definitions admit and refuse the same objects as a real API server does with them.
func TestSchemaAgreesWithAPIServer(t *testing.T) {
	for i, j := range corpus(t) {
		object := map[string]any{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(j.Object, &object); err != nil {
			t.Fatal(err)
		}
		r := creation(t, j.Object)
		d := istio.Of(r.Kind.Group, r.Kind.Version, r.Kind.Kind)
		wrong, unknown := d.Check(t.Context(), object), d.Unknown(object)
		if ours := len(wrong)+len(unknown) == 0; ours != j.Schema {
			t.Errorf("object %d, %s: ours %v, the API server's %v: %v %v", i, j.name(), ours, j.Schema, wrong, unknown)
		}
	}
}

// Of 2,236 objects at least 99.5 % are admitted or refused as by Istio. The others are listed in
// testdata/differences.txt, each with a reason that deploy/docs/validation.md documents.
func TestAgreesWithIstio(t *testing.T) {
	listed := differences(t)
	w, all := webhook(), corpus(t)
	found := 0
	for i, j := range all {
		ours, why := admits(t, w, j.Object)
		if ours == j.taken() {
			continue
		}
		found++
		if _, is := listed[j.name()]; !is {
			t.Errorf("object %d, %s: ours %v, Istio's %v: %s\n%s", i, j.name(), ours, j.taken(), why, j.Object)
		}
		delete(listed, j.name())
	}
	for name := range listed {
		t.Errorf("differences.txt has %q, which is no difference", name)
	}
	if limit := len(all) * 5 / 1000; found > limit {
		t.Errorf("%d of %d objects differ: at most %d may", found, len(all), limit)
	}
	t.Logf("%d of %d objects differ", found, len(all))
}

// differences is the objects of testdata/differences.txt with the reason of each, which the page on validation must
// have.
func differences(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "docs", "validation.md"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join("testdata", "differences.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, used := map[string]string{}, map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, reason, ok := strings.Cut(lines.Text(), "\t")
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if !ok || out[name] != "" {
			t.Fatalf("differences.txt: %q", lines.Text())
		}
		out[name], used[reason] = reason, true
	}
	for reason := range used {
		if !strings.Contains(string(page), "| "+reason+" |") {
			t.Errorf("deploy/docs/validation.md has no row %q", reason)
		}
	}
	return out
}
