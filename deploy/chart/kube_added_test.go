//go:build kube

package chart

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Values with the names of Istio's chart add their content to each Pod of navarchd, to the Services, and to the service
// accounts.
func TestKubeChartAdds(t *testing.T) {
	t.Parallel()
	text := scenes(t)["apart"]
	for name, pod := range podsOf(t, text) {
		c := pod.Spec.Containers[0]
		if c.Name != "discovery" {
			continue
		}
		var before []string
		for _, init := range pod.Spec.InitContainers {
			before = append(before, init.Name)
		}
		want := "first kms"
		if slices.Contains(c.Args, "--roles=admit") { // this role has no keys to open
			want = "first"
		}
		if got := strings.Join(before, " "); got != want {
			t.Errorf("%s: init containers %s, want %s", name, got, want)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "OTEL_EXPORTER_OTLP_HEADERS" && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef.Name == "collector" && e.ValueFrom.SecretKeyRef.Key == "headers"
		}) {
			t.Errorf("%s: environment %+v", name, c.Env)
		}
		if last := c.VolumeMounts[len(c.VolumeMounts)-1]; last != (corev1.VolumeMount{Name: "roots", MountPath: "/etc/roots", ReadOnly: true}) {
			t.Errorf("%s: mount %+v", name, last)
		}
		for _, wanted := range []string{"roots", "scratch"} {
			if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == wanted }) {
				t.Errorf("%s: there is no volume %s", name, wanted)
			}
		}
	}
	annotated := 0
	for _, u := range objects(t, text) {
		want := map[string]map[string]string{
			"Service":        {"example.com/balancer": "internal", "example.com/weight": "5"},
			"ServiceAccount": {"example.com/role": "arn:mesh"},
		}[u.GetKind()]
		if want == nil || strings.HasPrefix(u.GetName(), "navarch-") { // of etcd and of Jobs
			continue
		}
		if annotated++; !maps.Equal(u.GetAnnotations(), want) {
			t.Errorf("%s %s: annotations %v, want %v", u.GetKind(), u.GetName(), u.GetAnnotations(), want)
		}
	}
	if annotated != 6 {
		t.Errorf("%d Services and service accounts", annotated)
	}
}

// The annotation of a size on the Pods that serve proxies is that of files/sizes.yaml. For the values' own Deployments
// it is computed from their memory, with one replica fewer: (2 GiB / 2 - 90 MB) / 90 KB for each of 8.
func TestKubeChartSaysItsSize(t *testing.T) {
	t.Parallel()
	for scene, want := range map[string]map[string]string{
		"default":  {"istiod": "1000"},
		"external": {"istiod": "10000", "istiod-ingest": ""},
		"large":    {"istiod": "20000", "istiod-ingest": ""},
		"apart":    {"istiod-canary": "87440", "istiod-canary-ca": "", "istiod-canary-admit": "", "istiod-canary-ingest": ""},
	} {
		pods := podsOf(t, scenes(t)[scene])
		for name, proxies := range want {
			if got := pods["Deployment "+name].Annotations["navarch.io/proxies"]; got != proxies {
				t.Errorf("%s: Deployment %s is for %q proxies, want %q", scene, name, got, proxies)
			}
		}
	}
	for memory, want := range map[string]string{"1Gi": "4965", "1G": "4555", "1073741824": "4965", "1.5Gi": "7947", "100Mi": "0", "1e9": "", "1Ei": ""} {
		text := template(t, "--set", "deployments[0].roles={ingest,xds,ca,admit},deployments[0].replicas=1", "--set", "deployments[0].resources.limits.memory="+memory)
		if got := podsOf(t, text)["Deployment istiod"].Annotations["navarch.io/proxies"]; got != want {
			t.Errorf("%s is for %q proxies, want %q", memory, got, want)
		}
	}
	notes, err := helm(t).Run(t.Context(), "install", "navarch", helm(t).Dir, "--dry-run=client", "-n", "istio-system", "--set", "size=medium")
	if err != nil || !strings.Contains(notes, "The size medium is for 10000 proxies") {
		t.Errorf("%v: the notes do not say the size:\n%s", err, notes[max(0, len(notes)-1500):])
	}
}

// relabel does what Prometheus does with a target's labels by a rule (prometheus.io: relabel_config); false: the target
// is dropped.
func relabel(labels map[string]string, rule map[string]any) bool {
	var values []string
	sources, _ := rule["sourceLabels"].([]any)
	for _, source := range sources {
		values = append(values, labels[source.(string)])
	}
	text, replacement := "(.*)", "$1"
	if s, is := rule["regex"].(string); is {
		text = s
	}
	if s, is := rule["replacement"].(string); is {
		replacement = s
	}
	value, of := strings.Join(values, ";"), regexp.MustCompile("^(?:"+text+")$")
	found := of.FindStringSubmatchIndex(value)
	if rule["action"] == "keep" {
		return found != nil && (rule["regex"] != nil || value != "")
	}
	if found != nil {
		labels[rule["targetLabel"].(string)] = string(of.ExpandString(nil, replacement, value, found))
	}
	return true
}

// The PodMonitor scrapes exactly the sidecars of its revision, each once, at the port that injection writes into the
// annotation.
func TestKubeChartPodMonitor(t *testing.T) {
	t.Parallel()
	var monitor map[string]any
	for _, u := range objects(t, scenes(t)["external"]) {
		if u.GetKind() == "PodMonitor" {
			monitor = u.Object
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(monitor, "spec", "podMetricsEndpoints")
	if len(endpoints) != 1 {
		t.Fatalf("%v", monitor)
	}
	endpoint := endpoints[0].(map[string]any)
	if endpoint["path"] != "/stats/prometheus" || endpoint["interval"] != "20s" {
		t.Errorf("%v", endpoint)
	}
	for name, one := range map[string]struct{ container, revision, scrape, port, address, want string }{
		"a sidecar":              {"istio-proxy", "default", "true", "15020", "10.0.0.1:15090", "10.0.0.1:15020"},
		"a port that has none":   {"istio-proxy", "default", "true", "15020", "10.0.0.1", "10.0.0.1:15020"},
		"IPv6":                   {"istio-proxy", "default", "true", "15020", "[fd00::1]:15090", "[fd00::1]:15020"},
		"the application":        {"app", "default", "true", "15020", "10.0.0.1:8080", ""},
		"of another revision":    {"istio-proxy", "canary", "true", "15020", "10.0.0.1:15090", ""},
		"a Pod that is left out": {"istio-proxy", "default", "", "15020", "10.0.0.1:15090", ""},
	} {
		labels := map[string]string{"__address__": one.address, "__meta_kubernetes_pod_container_name": one.container, "__meta_kubernetes_pod_annotation_istio_io_rev": one.revision,
			"__meta_kubernetes_pod_annotationpresent_prometheus_io_scrape": one.scrape, "__meta_kubernetes_pod_annotation_prometheus_io_port": one.port,
			"__meta_kubernetes_namespace": "shop", "__meta_kubernetes_pod_name": "web-1"}
		kept := true
		for _, rule := range endpoint["relabelings"].([]any) {
			kept = kept && relabel(labels, rule.(map[string]any))
		}
		if want := one.want != ""; kept != want || kept && (labels["__address__"] != one.want || labels["namespace"] != "shop" || labels["pod_name"] != "web-1") {
			t.Errorf("%s: kept %v, %v", name, kept, labels)
		}
	}
}
