package injection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	files "navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/status"
)

func newInjection(c Config) *Injection {
	c.Namespace, c.Log = "istio-system", slog.New(slog.DiscardHandler)
	if c.Mesh == nil {
		c.Mesh = model.MeshDefaults
	}
	c.Proxies = func(string) []*proxyconfigv1.ProxyConfig { return nil }
	return New(c)
}

func configMap(version int, edits ...string) status.Found[corev1.ConfigMap] {
	edit := strings.NewReplacer(edits...)
	return status.Found[corev1.ConfigMap]{Version: status.Version(version), Object: &corev1.ConfigMap{Data: map[string]string{"config": edit.Replace(files.Config()), "values": edit.Replace(files.Values())}}}
}

// image returns the image of the injected proxy of a Pod, or the reason why it is not injected.
func image(t *testing.T, i *Injection) string {
	t.Helper()
	pod := `{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "web"}]}}`
	a := i.Handler.Admit(t.Context(), "/inject", &admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create, Namespace: "shop",
		Object: runtime.RawExtension{Raw: []byte(pod)}})
	if !a.Allowed {
		return a.Result.Message
	}
	_, after, _ := strings.Cut(string(a.Patch), `"image":"`)
	name, _, _ := strings.Cut(after, `"`)
	return name
}

// The newest configuration applies at once; if a newer one is not valid, or deleted, the last good one stays in effect,
// and that is reported.
func TestLastGoodConfigurationStands(t *testing.T) {
	i := newInjection(Config{Native: NativeOff})
	s := seen{i}
	key := s.key()
	check := func(want, note string) {
		t.Helper()
		if got := image(t, i); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		if got := strings.Join(i.Notes(), "\n"); note == "" && got != "" || !strings.Contains(got, note) {
			t.Errorf("notes %q, want %q", got, note)
		}
	}
	check("no injection configuration", "")
	s.Replace(nil)
	check("no injection configuration", "ConfigMap istio-system/istio-sidecar-injector does not exist")
	s.Replace(map[status.Key]status.Found[corev1.ConfigMap]{key: configMap(1)})
	check("navarch-agent:dev", "")
	s.Observe(key, configMap(2, "tag: dev", "tag: '2'"))
	check("navarch-agent:2", "")
	s.Observe(status.Key{Namespace: "other", Name: key.Name}, configMap(3))
	check("navarch-agent:2", "")
	s.Observe(key, configMap(4, "policy: enabled", "policy: perhaps"))
	check("navarch-agent:2", `policy "perhaps"`)
	s.Observe(key, configMap(5, "{{- $hold := and", "{{ unheardOf }}{{- $hold := and"))
	check("navarch-agent:2", `function "unheardOf" not defined`)
	s.Observe(key, status.Found[corev1.ConfigMap]{Version: 6})
	check("navarch-agent:2", "does not exist")
	i.failed(errors.New("forbidden"))
	check("navarch-agent:2", "forbidden")
	i.failed(nil)
	s.Replace(map[status.Key]status.Found[corev1.ConfigMap]{key: configMap(7, "tag: dev", "tag: '7'", "{{- $metadata := dict", "{{- unheardOf }}{{- $metadata := dict")})
	check("navarch-agent:7", "templates.grpc-simple")
}

func TestMeshIsAwaited(t *testing.T) {
	var mesh *meshv1alpha1.MeshConfig
	i := newInjection(Config{Native: NativeOff, Mesh: func() *meshv1alpha1.MeshConfig { return mesh }})
	i.use(configMap(1))
	if got := image(t, i); !strings.Contains(got, "the mesh configuration has not been read yet") {
		t.Error(got)
	}
	mesh = model.MeshDefaults()
	if got := image(t, i); got != "navarch/navarch-agent:dev" {
		t.Error(got)
	}
}

func TestNativeByKubelets(t *testing.T) {
	versions, fault := map[string]string{"a": "v1.33.0"}, error(nil)
	i := newInjection(Config{Native: NativeAuto, Cluster: "home", Kubelets: func(context.Context) (map[string]string, error) { return versions, fault }})
	check := func(want string) {
		t.Helper()
		if got := fmt.Sprint(i.native("", ""), i.native("home", ""), i.native("west", ""), i.native("", "a"), i.Notes() != nil); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("false false false false false")
	i.lookAtKubelets(t.Context())
	check("true true false true false")
	versions = map[string]string{"a": "v1.33.0", "b": "v1.32.0"}
	i.lookAtKubelets(t.Context())
	check("false false false true false")
	versions, fault = nil, errors.New("away")
	i.lookAtKubelets(t.Context())
	check("false false false true true")
	for native, want := range map[NativeSidecars]bool{NativeOn: true, NativeOff: false} {
		if i := newInjection(Config{Native: native}); i.native("west", "") != want || len(i.Tasks()) != 1 {
			t.Errorf("%s: %v", native, i.native("west", ""))
		}
	}
	var n NativeSidecars
	if err := n.Set("false"); err != nil || n != NativeOff || n.Set("perhaps") == nil || n != NativeOff {
		t.Errorf("%v %s", err, n)
	}
	if got := (Config{Revision: "canary"}).Name(); got != "istio-sidecar-injector-canary" {
		t.Error(got)
	}
}
