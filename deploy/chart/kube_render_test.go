//go:build kube

package chart

import (
	"cmp"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/store/programs"
)

func TestMain(m *testing.M) {
	cluster.Init()
	if os.Getenv(caVariable) != "" {
		log.Fatal(serveCA()) // a container of a Pod, whose image is this program
	}
	os.Exit(m.Run())
}

// helm returns Helm without a cluster.
func helm(t *testing.T) *Helm {
	t.Helper()
	h, err := NewHelm(t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// template returns the rendered chart in namespace istio-system.
func template(t *testing.T, args ...string) string {
	t.Helper()
	h := helm(t)
	text, err := h.Run(t.Context(), append([]string{"template", "navarch", h.Dir, "-n", "istio-system"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	rendered     = map[string]string{}
	renderedOnce sync.Once
)

// scenes returns the templates' output for each file of values in ci.
func scenes(t *testing.T) map[string]string {
	t.Helper()
	renderedOnce.Do(func() {
		files, err := filepath.Glob("ci/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			rendered[strings.TrimSuffix(filepath.Base(file), ".yaml")] = template(t, "-f", file)
		}
	})
	if len(rendered) < 5 {
		t.Fatalf("%d files of values", len(rendered))
	}
	return rendered
}

// objects returns the objects of a text.
func objects(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, document := range Documents(text) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, u)
	}
	return all
}

// object decodes the object of a kind and a name in a text.
func object(t *testing.T, text, kind, name string, into any) {
	t.Helper()
	for _, u := range objects(t, text) {
		if u.GetKind() == kind && u.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
}

// podsOf returns the templates of Pods in the rendered chart, by kind and name.
func podsOf(t *testing.T, text string) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	all := map[string]*corev1.PodTemplateSpec{}
	for _, u := range objects(t, text) {
		path := []string{"spec", "template"}
		if u.GetKind() == "CronJob" {
			path = []string{"spec", "jobTemplate", "spec", "template"}
		}
		tree, found, _ := unstructured.NestedMap(u.Object, path...)
		if !found {
			continue
		}
		pod := &corev1.PodTemplateSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, pod); err != nil {
			t.Fatal(err)
		}
		all[u.GetKind()+" "+u.GetName()] = pod
	}
	return all
}

// Every file of ci renders to objects of Kubernetes' own types without unknown fields, each in the release's namespace
// or without one, and without duplicates. `helm lint` reports nothing. The values of `make demo-kube` render, too.
func TestKubeChartRenders(t *testing.T) {
	t.Parallel()
	template(t, "-f", "../demo/kube/values.yaml", "--set", "crds.install=false")
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	h := helm(t)
	for name, text := range scenes(t) {
		if out, err := h.Run(t.Context(), "lint", "--strict", h.Dir, "-f", filepath.Join("ci", name+".yaml")); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		seen := map[string]bool{}
		for _, document := range Documents(text) {
			u := objects(t, document)[0]
			id := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
			if seen[id] {
				t.Errorf("%s: %s is there twice", name, id)
			}
			seen[id] = true
			if strings.HasPrefix(u.GetAPIVersion(), "monitoring.coreos.com/") {
				continue // the operator's, which has no types here: TestAlerts reads them
			}
			if _, _, err := strict.Decode([]byte(document), nil, nil); err != nil {
				t.Errorf("%s: %s: %v", name, id, err)
			}
		}
	}
}

// navarchd accepts the chart's settings together: it starts, and ends only because a named file, or an API server, does
// not exist here.
func TestKubeChartIsTaken(t *testing.T) {
	t.Parallel()
	program := programs.For(t, "navarchd")
	for name, text := range scenes(t) {
		for pod, spec := range podsOf(t, text) {
			c := spec.Spec.Containers[0]
			if c.Name != "discovery" {
				continue
			}
			cmd := exec.CommandContext(t.Context(), program, append(c.Args, "--etcd-ca=none")...)
			for _, e := range c.Env {
				cmd.Env = append(cmd.Env, e.Name+"="+cmp.Or(e.Value, "x")) // fields of the Pod
			}
			want := "navarchd: --etcd-ca: open none: "
			if slices.Contains(c.Args, "--roles=admit") { // which has no etcd, and asks the API server of its Pod
				want = "navarchd: --kubeconfig, --registries: no kubeconfig is given, and this process is not in a Pod"
			}
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %s: %v %s", name, pod, err, out)
			}
		}
	}
}

// variables returns the variables that navarchd and its libraries read from their environment.
func variables(t *testing.T) []string {
	t.Helper()
	all := []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE"} // Go's own, OpenTelemetry's
	sources, _ := filepath.Glob("../../cmd/navarchd/*.go")
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?:parse|envOr|Getenv)\("([A-Z0-9_]+)"`).FindAllStringSubmatch(string(source), -1) {
			all = append(all, match[1])
		}
	}
	return all
}

// withoutValue are flags and variables of navarchd that no value sets: addresses, which Services and probes name; files
// that are in no volume of the chart, or that issuers have; a folder instead of a cluster; the embedded etcd; proofs
// that Kubernetes makes better; settings for tests.
var withoutValue = []string{"http-addr", "https-addr", "secure-grpc-addr", "monitoring-addr", "advertise-address", "cacerts", "peer-roots", "tls-cert", "tls-key", "tls-client-ca",
	"config-dir", "data-dir", "kubeconfig", "token-file", "token-keys", "jwks-loopback", "zone", "help", "version",
	"NAVARCH_EXPERIMENT_OFF", "ENABLE_CA_SERVER", "PILOT_CERT_PROVIDER", "EXTERNAL_CA", "K8S_SIGNER", "CERT_SIGNER_DOMAIN", "CLUSTER_ID"}

// Every flag and variable that the chart sets, or lets users set, exists in navarchd. The chart sets, or lets users
// set, all of navarchd's, except those without a value.
func TestKubeChartFlags(t *testing.T) {
	t.Parallel()
	help, err := execute(t, programs.For(t, "navarchd"), "--help")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, match := range regexp.MustCompile(`(?m)^\s+--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
		known = append(known, match[1])
	}
	variables := variables(t)
	given := slices.Clone(withoutValue)
	for name, text := range scenes(t) {
		for pod, spec := range podsOf(t, text) {
			c := spec.Spec.Containers[0]
			if c.Name != "discovery" {
				continue
			}
			for _, arg := range c.Args {
				flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				given = append(given, flag)
				if !slices.Contains(known, flag) {
					t.Errorf("%s: %s: navarchd knows no flag %s", name, pod, arg)
				}
			}
			for _, e := range c.Env {
				given = append(given, e.Name)
				if !slices.Contains(variables, e.Name) {
					t.Errorf("%s: %s: navarchd reads no variable %s", name, pod, e.Name)
				}
			}
		}
	}
	allowed := schema(t)
	for _, one := range []struct {
		value string
		known []string
	}{{"flags", known}, {"env", variables}} {
		for name := range allowed[one.value].Properties {
			given = append(given, name)
			if !slices.Contains(one.known, name) {
				t.Errorf("%s.%s is none that navarchd knows", one.value, name)
			}
		}
		for _, name := range one.known {
			if !slices.Contains(given, name) {
				t.Errorf("%s has no %s, which navarchd knows", one.value, name)
			}
		}
	}
}
