package inject

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/model"
)

func review(raw []byte) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create, Namespace: "shop", Object: runtime.RawExtension{Raw: raw}}
}

func ready(t testing.TB) *Handler {
	h := NewHandler(model.MeshDefaults, func(string, string) bool { return false }, nil)
	h.Use(settings(t))
	return h
}

func TestAdmit(t *testing.T) {
	h := NewHandler(model.MeshDefaults, func(cluster, node string) bool { return cluster == "west" && node == "n1" }, nil)
	raw := encoded(t, podOf(t, simplePod+"  \n"))
	if a := h.Admit(t.Context(), "/inject", review(raw)); a.Allowed || a.Result.Code != 503 || h.Ready() == nil {
		t.Errorf("without a configuration: %+v", a)
	}
	h.Use(settings(t))
	a := h.Admit(t.Context(), "/inject", review(raw))
	if !a.Allowed || a.Patch == nil || *a.PatchType != admissionv1.PatchTypeJSONPatch || h.Ready() != nil {
		t.Fatalf("%+v", a)
	}
	if strings.Contains(string(a.Patch), `"/metadata/namespace"`) || strings.Contains(string(a.Patch), `"restartPolicy"`) {
		t.Errorf("patch %s", a.Patch)
	}
	placed := podOf(t, simplePod)
	placed.Spec.NodeName = "n1"
	if a := h.Admit(t.Context(), "/inject/cluster/west", review(encoded(t, placed))); !strings.Contains(string(a.Patch), `"restartPolicy":"Always"`) {
		t.Errorf("patch %s", a.Patch)
	}
	again := h.Admit(t.Context(), "/inject", review(apply(t, raw, a.Patch)))
	if !again.Allowed || again.Patch != nil || again.PatchType != nil {
		t.Errorf("injected again: %s", again.Patch)
	}
	skipped := strings.Replace(string(raw), `"app":"web"`, `"sidecar.istio.io/inject":"false"`, 1)
	if a := h.Admit(t.Context(), "/inject", review([]byte(skipped))); !a.Allowed || a.Patch != nil {
		t.Errorf("%+v", a)
	}
}

// The request of istioctl kube-inject is answered, byte for byte except for the Pod (istio
// istioctl/pkg/kubeinject/kubeinject.go): a review without a uid or an operation, whose kind is the review's own.
func TestAdmitKubeInject(t *testing.T) {
	server := admit.New(admit.Config{})
	server.Register("injection", "/inject", ready(t), nil)
	pod := `{"metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"web","resources":{}}]},"status":{}}`
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"","kind":{"group":"admission.k8s.io","version":"v1","kind":"AdmissionRequest"},` +
		`"resource":{"group":"","version":"","resource":""},"namespace":"shop","operation":"","userInfo":{},"object":` + pod + `,"oldObject":null,"options":null}}`
	r := httptest.NewRequest(http.MethodPost, "https://127.0.0.1:41234/inject", strings.NewReader(body))
	r.Header = http.Header{"User-Agent": {"Go-http-client/1.1"}, "Content-Type": {"application/json"}, "Accept-Encoding": {"gzip"}}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if answer.Kind != "AdmissionReview" || answer.APIVersion != "admission.k8s.io/v1" || answer.Response == nil || !strings.Contains(string(answer.Response.Patch), "istio-proxy") {
		t.Errorf("%s", w.Body)
	}
}

// Whatever an object is, there is an answer: no panic; it is not admitted without its proxy.
func TestAdmitGarbage(t *testing.T) {
	h := ready(t)
	large := podOf(t, simplePod)
	large.Annotations = map[string]string{"note": strings.Repeat("x", 1<<20)}
	many := podOf(t, simplePod)
	for range 5000 {
		many.Spec.Containers = append(many.Spec.Containers, corev1.Container{Name: "app", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 1}}})
	}
	for name, c := range map[string]struct {
		raw     []byte
		path    string
		allowed bool
	}{
		"nothing":       {nil, "/inject", false},
		"text":          {[]byte("no JSON"), "/inject", false},
		"a list":        {[]byte("[]"), "/inject", false},
		"null":          {[]byte("null"), "/inject", true},
		"wrong type":    {[]byte(`{"spec": {"containers": "x"}}`), "/inject", false},
		"deep":          {[]byte(strings.Repeat(`{"spec":`, 20000)), "/inject", false},
		"a wrong path":  {encoded(t, podOf(t, simplePod)), "/inject/cluster", false},
		"1 MiB":         {encoded(t, large), "/inject", false},
		"5,000 of them": {encoded(t, many), "/inject", false},
	} {
		if a := h.Admit(t.Context(), c.path, review(c.raw)); a.Allowed != c.allowed || !a.Allowed && a.Result.Message == "" {
			t.Errorf("%s: %v %.300v", name, a.Allowed, a.Result)
		}
	}
	for _, change := range []func(r *admissionv1.AdmissionRequest){
		func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update },
		func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Secret" },
		func(r *admissionv1.AdmissionRequest) { r.SubResource = "ephemeralcontainers" },
		func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.Kind = "", metav1.GroupVersionKind{Group: "admission.k8s.io", Version: "v1", Kind: "AdmissionRequest"} // an API server's, which has a uid
		},
	} {
		r := review(encoded(t, podOf(t, simplePod)))
		change(r)
		if a := h.Admit(t.Context(), "/inject", r); !a.Allowed || a.Patch != nil {
			t.Errorf("%+v: %s", r.Kind, a.Patch)
		}
	}
}

// Patches contain only differences: a rewritten probe is a change of that probe, and unknown fields of the object stay.
func TestPatchIsSmall(t *testing.T) {
	raw := []byte(`{"metadata":{"name":"web-0","creationTimestamp":null},"spec":{"containers":[{"name":"istio-proxy","image":"auto","resources":{}},{"name":"app","image":"web","unheardOf":{"a":1},"resources":{},"readinessProbe":{"httpGet":{"path":"/","port":80}}}]},"status":{}}`)
	a := ready(t).Admit(t.Context(), "/inject", review(raw))
	if !a.Allowed {
		t.Fatal(a.Result)
	}
	var all []map[string]any
	if err := json.Unmarshal(a.Patch, &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if path := o["path"].(string); path == "/spec/containers" || o["op"] == "remove" || path == "/spec/containers/0" && o["op"] != "move" {
			t.Errorf("operation %v", o)
		}
	}
	var got struct {
		Spec struct{ Containers []map[string]any }
	}
	if err := json.Unmarshal(apply(t, raw, a.Patch), &got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Containers[0]["name"] != "app" || got.Spec.Containers[0]["unheardOf"] == nil || got.Spec.Containers[1]["name"] != "istio-proxy" {
		t.Errorf("%v", got.Spec.Containers)
	}
}

func TestDiffLists(t *testing.T) {
	list := func(names string) (all []any) {
		for _, n := range strings.Fields(names) {
			name, value, _ := strings.Cut(n, "=")
			all = append(all, map[string]any{"name": name, "value": value})
		}
		return all
	}
	for _, c := range []struct {
		from, to string
		most     int // operations
	}{
		{"", "a b", 2}, {"a b", "", 2}, {"a b c", "c a b", 1}, {"a=1 b=2", "a=1 x b=3", 2}, {"a b c d", "d c b a", 3}, {"a a", "a b", 1}, {"x a y b z", "b=1 a=2", 6}, {"a", "b", 2},
	} {
		from, to := encoded(t, map[string]any{"l~/": list(c.from)}), encoded(t, map[string]any{"l~/": list(c.to)})
		all, err := diff(nil, "", from, to)
		if err != nil || len(all) > c.most {
			t.Errorf("%s -> %s: %v %v", c.from, c.to, all, err)
		}
		if got := apply(t, from, encoded(t, all)); string(got) != string(to) {
			t.Errorf("%s -> %s: %s by %s", c.from, c.to, got, encoded(t, all))
		}
	}
}

// For any object there is no panic; a patch applies, and injecting its result changes nothing.
func FuzzAdmit(f *testing.F) {
	h := ready(f)
	for _, text := range []string{simplePod, probed, annotated(`prometheus.io/port: "9", proxy.istio.io/config: "concurrency: 1"`)} {
		js, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(js, "/inject")
	}
	f.Add([]byte(`{"metadata":{"annotations":{"sidecar.istio.io/status":"{\"containers\":[\"app\"]}"}},"spec":{"containers":[{"name":"app"},{"name":"istio-proxy"}]}}`), "/inject/cluster/a/net/b")
	f.Fuzz(func(t *testing.T, raw []byte, path string) {
		pod := &corev1.Pod{}
		if json.Unmarshal(raw, pod) != nil {
			_ = h.Admit(t.Context(), path, review(raw))
			return
		}
		sent := encoded(t, pod)
		a := h.Admit(t.Context(), path, review(sent))
		if _, before := pod.Annotations[statusAnnotation]; !a.Allowed || a.Patch == nil || before {
			return // a result that is not an injector's has no defined inverse
		}
		patched := apply(t, sent, a.Patch)
		if again := h.Admit(t.Context(), path, review(patched)); again.Allowed && again.Patch != nil {
			t.Errorf("injected again: %s\nafter %s", again.Patch, a.Patch)
		}
	})
}

func BenchmarkInjection(b *testing.B) {
	h := ready(b)
	raw := encoded(b, podOf(b, probed))
	b.ReportAllocs()
	var size int
	for b.Loop() {
		a := h.Admit(b.Context(), "/inject/cluster/west/net/n2", review(raw))
		if !a.Allowed || a.Patch == nil {
			b.Fatal(a.Result)
		}
		size = len(a.Patch)
	}
	b.ReportMetric(float64(size), "patch-B")
}
