//go:build kube

package injection

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	proxyconfigv1 "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"

	files "navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/status"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

func manifest(t *testing.T, object any) string {
	t.Helper()
	js, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(js)
}

// eventually waits for a fact.
func eventually(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !fact(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal(what)
		}
	}
}

// follow starts an Injection with only the documented rights, and serves its handler at an address for the API server.
func follow(t *testing.T, c *controlplane.ControlPlane) (*Injection, *httptest.Server) {
	t.Helper()
	kubeconfig := rights.Documented(t, c)
	maps, err := status.NewConfigMaps(kubeconfig, "istio-system", "istio-sidecar-injector")
	if err != nil {
		t.Fatal(err)
	}
	api, err := apiserver.New(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	i := New(Config{Namespace: "istio-system", Cluster: "Kubernetes", Native: NativeAuto, Mesh: model.MeshDefaults, Proxies: func(string) []*proxyconfigv1.ProxyConfig { return nil }, Follow: maps.Follow, Kubelets: Kubelets(api), Pause: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for _, task := range i.Tasks() {
		go func() { _ = task.Run(ctx); ended <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range i.Tasks() {
			<-ended
		}
	})
	server := admit.New(admit.Config{})
	server.Register("injection", "/inject", i.Handler, nil)
	hook := httptest.NewTLSServer(server)
	t.Cleanup(hook.Close)
	return i, hook
}

// A Pod is injected by real admission: the API server calls the webhook with Istio's selectors, applies its patch, and
// validates the resulting Pod. Changes of the ConfigMap apply; the last good one stays in effect.
func TestKubePodsAreInjected(t *testing.T) {
	c := controlplane.Shared(t)
	i, hook := follow(t, c)
	put := func(edits ...string) {
		edit := strings.NewReplacer(edits...)
		c.Kubectl(t, manifest(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "istio-sidecar-injector", "namespace": "istio-system"},
			"data": map[string]string{"config": edit.Replace(files.Config()), "values": edit.Replace(files.Values())}}), "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	put()
	eventually(t, "no configuration was taken", func() bool { return i.Handler.Ready() == nil })
	configuration := inject.Webhooks{Namespace: "istio-system"}.Configuration()
	for n := range configuration.Webhooks {
		w := &configuration.Webhooks[n].ClientConfig
		url := hook.URL + "/inject/cluster/Kubernetes/net/n1"
		w.Service, w.URL, w.CABundle = nil, &url, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	}
	c.Kubectl(t, manifest(t, configuration), "apply", "-f", "-")
	t.Cleanup(func() { c.Kubectl(t, "", "delete", "mutatingwebhookconfiguration", configuration.Name) })
	namespace, plain := c.Namespace(t), c.Namespace(t)
	c.Kubectl(t, "", "label", "namespace", namespace, "istio-injection=enabled")
	create := func(in, name, more string) string {
		c.Kubectl(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"app": "web"}}, "spec": {"serviceAccountName": "web", %s "containers": [{"name": "app", "image": "web", "ports": [{"name": "http", "containerPort": 80}],
			"readinessProbe": {"httpGet": {"path": "/", "port": "http"}}}]}}`, name, more), "-n", in, "create", "-f", "-")
		return c.Kubectl(t, "", "-n", in, "get", "pod", name, "-o", `jsonpath={.spec.initContainers[*].name} {.spec.containers[*].name} {.spec.containers[?(@.name=="istio-proxy")].image} {.metadata.labels.topology\.istio\.io/network}`)
	}
	// The API server needs a moment to know of webhooks.
	n := 0
	eventually(t, "no Pod is injected", func() bool {
		n++
		return create(namespace, fmt.Sprint("web-", n), "") == "istio-init app istio-proxy navarch/navarch-agent:dev n1"
	})
	if got := create(plain, "web", ""); strings.Contains(got, "istio") {
		t.Errorf("in a namespace that says nothing: %s", got)
	}
	if got := create(namespace, "host", `"hostNetwork": true,`); strings.Contains(got, "istio") {
		t.Errorf("with the network of its node: %s", got)
	}
	put("tag: dev", "tag: '2'")
	eventually(t, "the newer ConfigMap is not taken", func() bool {
		n++
		return create(namespace, fmt.Sprint("web-", n), "") == "istio-init app istio-proxy navarch/navarch-agent:2 n1"
	})
	put("policy: enabled", "policy: perhaps")
	eventually(t, "the ConfigMap that cannot be used is not noted", func() bool { return strings.Contains(strings.Join(i.Notes(), " "), "perhaps") })
	if got := create(namespace, "last", ""); got != "istio-init app istio-proxy navarch/navarch-agent:2 n1" {
		t.Errorf("by the last good configuration: %s", got)
	}
	put("{{- $hold := and", "{{ if eq .ObjectMeta.Name `refused` }}{{ fail `by its template` }}{{ end }}{{- $hold := and")
	eventually(t, "the newest ConfigMap is not taken", func() bool { return len(i.Notes()) == 0 })
	if got := refused(t, c, namespace, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "refused"}, "spec": {"containers": [{"name": "app", "image": "web"}]}}`); !strings.Contains(got, "ConfigMap istio-system/istio-sidecar-injector, key config, templates.sidecar: template: sidecar:") || !strings.Contains(got, "by its template") {
		t.Errorf("kubectl was told %s", got)
	}
	// Nodes whose kubelets know sidecar containers, and then one that does not.
	node := func(name, version string) {
		c.Kubectl(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q}}`, name), "create", "-f", "-")
		t.Cleanup(func() { c.Kubectl(t, "", "delete", "node", name) })
		c.Kubectl(t, "", "patch", "node", name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status": {"nodeInfo": {"kubeletVersion": %q}}}`, version))
	}
	node("young", "v1.33.1")
	eventually(t, "no proxy is a sidecar container", func() bool {
		n++
		return create(namespace, fmt.Sprint("web-", n), "") == "istio-init istio-proxy app  n1"
	})
	node("old", "v1.32.9")
	eventually(t, "the proxy is a sidecar container still", func() bool {
		n++
		return strings.HasPrefix(create(namespace, fmt.Sprint("web-", n), ""), "istio-init app istio-proxy")
	})
	if got := create(namespace, "placed", `"nodeName": "young",`); got != "istio-init istio-proxy app  n1" {
		t.Errorf("on its node: %s", got)
	}
}

// refused returns kubectl's message about a Pod that is not created.
func refused(t *testing.T, c *controlplane.ControlPlane, namespace, pod string) string {
	t.Helper()
	api, err := apiserver.Of(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Do(t.Context(), "POST", "/api/v1/namespaces/"+namespace+"/pods", json.RawMessage(pod), nil); err != nil {
		return err.Error()
	}
	return "it was created"
}

// The API server accepts Pods with each of the chart's templates (dry run).
func TestKubeTemplatesAreValid(t *testing.T) {
	c := controlplane.Shared(t)
	namespace := c.Namespace(t)
	for name, edits := range map[string][]string{
		"sidecar": nil, "native": nil, "gateway": nil, "grpc-simple": nil, "tproxy": nil,
		"stock":      {"agent: navarch", "agent: istio"},
		"grpc-agent": {"agent: navarch", "agent: istio"},
		"cni":        {"cni: {enabled: false", "cni: {enabled: true"},
	} {
		edit := strings.NewReplacer(edits...)
		config, err := inject.ParseConfig("chart", files.Config(), edit.Replace(files.Values()), nil)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		pod.APIVersion, pod.Kind, pod.Name, pod.Labels = "v1", "Pod", name, map[string]string{"app": "web"}
		pod.Spec.ServiceAccountName = "web" // by admission, where the control plane has it
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
		pod.Annotations = map[string]string{}
		switch name {
		case "gateway":
			pod.Annotations["inject.istio.io/templates"] = name
			pod.Spec.Containers = []corev1.Container{{Name: "istio-proxy", Image: "auto"}}
		case "grpc-simple", "grpc-agent":
			pod.Annotations["inject.istio.io/templates"] = name
		case "tproxy":
			pod.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
		}
		s := inject.Settings{Config: config, Mesh: model.MeshDefaults(), Namespace: "istio-system"}
		out, err := s.Inject(t.Context(), inject.Request{Pod: pod, Namespace: namespace, Native: name == "native" || name == "stock"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if said := c.Kubectl(t, manifest(t, out), "-n", namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-"); !strings.Contains(said, "created") {
			t.Errorf("%s: %s", name, said)
		}
	}
}
