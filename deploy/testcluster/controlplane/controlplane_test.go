//go:build kube

package controlplane

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// A control plane has the properties that other tests use: it serves the kinds of Istio and of the Gateway API,
// namespaces belong to one test, and the API server returns at its address with the stored objects, after a kill and
// after a pause.
func TestKubeSharedControlPlane(t *testing.T) {
	c := Shared(t)
	ns := c.Namespace(t)
	c.Kubectl(t, `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "v"}, "spec": {"hosts": ["a.example.com"]}}`, "-n", ns, "apply", "-f", "-")
	if kinds := c.Kubectl(t, "", "api-resources", "--api-group=gateway.networking.k8s.io", "-o", "name"); !strings.Contains(kinds, "httproutes.") {
		t.Errorf("kinds of the Gateway API: %q", kinds)
	}
	c.KillAPIServer()
	c.StartAPIServer(t)
	if got := c.Kubectl(t, "", "-n", ns, "get", "virtualservice", "v", "-o", "name"); !strings.Contains(got, "/v") {
		t.Errorf("after a restart: %q", got)
	}
	client := kubernetes.NewForConfigOrDie(c.Config())
	c.PauseAPIServer()
	answered := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused API server answered (%v)", err)
	case <-time.After(200 * time.Millisecond):
	}
	c.ResumeAPIServer()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// A control plane that loads stored definitions of another one has the same definitions as one that applied the files.
func TestKubeKeptDefinitions(t *testing.T) {
	tools, err := Tools()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir() // nothing is kept there yet
	for _, folder := range []string{"bin", "crds"} {
		if err := os.Symlink(filepath.Join(tools, folder), filepath.Join(own, folder)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(tools, "crds", "gateway-api.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for _, kept := range []int{0, 1} {
		if files, _ := filepath.Glob(filepath.Join(own, "kube-state", "*")); len(files) != kept {
			t.Errorf("kept: %q", files)
		}
		c := Start(t, Options{GatewayAPI: true, Tools: own})
		have := c.Kubectl(t, "", "get", "customresourcedefinitions,validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "yaml", "--show-managed-fields=false")
		if kinds := strings.Count(have, "\n  kind: "); kinds != strings.Count("\n"+string(text), "\nkind: ") {
			t.Errorf("%d objects of the %d in the file", kinds, strings.Count("\n"+string(text), "\nkind: "))
		}
		if have = times.ReplaceAllString(have, ""); kept == 1 && have != first {
			t.Errorf("what is kept differs from what was applied:\n%s\n%s", first, have)
		}
		first = have
	}
}

// times are parts of objects that differ each time.
var times = regexp.MustCompile(`(resourceVersion|uid|lastTransitionTime|creationTimestamp): .*`)

// The controllers create EndpointSlices of Services and Pods, and empty a deleted namespace. Admission sets the service
// account of Pods.
func TestKubeControllers(t *testing.T) {
	c := Start(t, Options{Admission: true, Controllers: Controllers})
	c.Kubectl(t, "", "create", "namespace", "shop")
	c.Kubectl(t, "", "wait", "--for=create", "--timeout=120s", "-n", "shop", "serviceaccount/default")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}`, "apply", "-f", "-")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}`, "-n", "shop", "apply", "-f", "-")
	c.RunPod(t, "shop", "web-1", "n", "10.244.0.7", map[string]string{"app": "web"})
	c.Kubectl(t, "", "wait", "--for=jsonpath={.endpoints[0].addresses[0]}=10.244.0.7", "--timeout=120s", "-n", "shop", "endpointslice", "-l", "kubernetes.io/service-name=web")
	if account := c.Kubectl(t, "", "-n", "shop", "get", "pod", "web-1", "-o", "jsonpath={.spec.serviceAccountName}"); account != "default" {
		t.Errorf("account %q", account)
	}
	c.Kubectl(t, "", "delete", "namespace", "shop", "--timeout=120s")
}
