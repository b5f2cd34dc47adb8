//go:build kube

package status

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// With the documented rights only: the ConfigMap is created, restored after edits and deletions, follows a rotation,
// and replaces one of another author. An immutable one is reported by name.
func TestKubeRootCerts(t *testing.T) {
	c := controlplane.Shared(t)
	api, err := NewConfigMaps(rights.Documented(t, c), metav1.NamespaceAll, RootCertName)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Config[corev1.ConfigMap]{API: api, Kind: "ConfigMap", Deadline: time.Second, Log: slog.New(slog.DiscardHandler),
		Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, 7) }()
	defer func() { cancel(); <-ended }()

	a, b, fixed := c.Namespace(t), c.Namespace(t), c.Namespace(t)
	c.Kubectl(t, "", "-n", b, "create", "configmap", RootCertName, "--from-literal=more=stays")
	c.Kubectl(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert"}, "immutable": true}`, "-n", fixed, "create", "-f", "-")
	has := func(namespace, roots string) {
		t.Helper()
		got := ""
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			got = c.Kubectl(t, "", "-n", namespace, "get", "configmap", RootCertName, "--ignore-not-found", "-o",
				`jsonpath={.data.root-cert\.pem} {.metadata.labels.istio\.io/config} {.metadata.annotations.navarch\.io/epoch}`)
			if got == roots+" true 7" {
				return
			}
		}
		t.Fatalf("%s has %q, want %q; problems: %v", namespace, got, roots, w.Problems())
	}
	w.Want(RootCerts([]string{a, b, fixed}, "one"))
	has(a, "one")
	has(b, "one")
	if got := c.Kubectl(t, "", "-n", b, "get", "configmap", RootCertName, "-o", "jsonpath={.data.more}"); got != "stays" {
		t.Errorf("what else was in it is %q", got)
	}
	w.Want(RootCerts([]string{a, b, fixed}, "one two"))
	has(a, "one two")
	c.Kubectl(t, "", "-n", a, "patch", "configmap", RootCertName, "-p", `{"data": {"root-cert.pem": "evil"}}`)
	has(a, "one two")
	c.Kubectl(t, "", "-n", a, "delete", "configmap", RootCertName)
	has(a, "one two")
	if p := fmt.Sprint(w.Problems()); !strings.Contains(p, fixed+"/"+RootCertName) || strings.Contains(p, a+"/") {
		t.Errorf("problems: %s", p)
	}
}

// delayed delays writes to the API server: after they were encoded, before they are sent.
type delayed struct {
	API[unstructured.Unstructured]
	mu   sync.Mutex
	held func() // nil: nothing is held up
}

func (d *delayed) hold(held func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
}

func (d *delayed) Write(_ context.Context, k Key, o *unstructured.Unstructured) (Found[unstructured.Unstructured], error) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		held()
	}
	return d.API.Write(context.Background(), k, o) // a process that was stopped sends after its deadline, too
}

// With the documented rights only. A second controller writes its condition 300 times (1,000 times:
// TestSecondControllerLosesNothing) while ours changes, and no write is lost. A leader that was stopped between
// encoding and sending sends late, and the state of its successor remains.
func TestKubeObjectStatus(t *testing.T) {
	c := controlplane.Shared(t)
	namespace := c.Namespace(t)
	c.Kubectl(t, `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "cart"},
		"spec": {"hosts": ["cart"], "http": [{"route": [{"destination": {"host": "cart"}}]}]}}`, "-n", namespace, "create", "-f", "-")
	c.Kubectl(t, `{"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": {"name": "f"}, "spec": {}}`, "-n", namespace, "create", "-f", "-")
	kubeconfig := rights.Documented(t, c)
	begin := func(kind string, epoch int64) (*delayed, *Writer[unstructured.Unstructured]) {
		api, err := NewIstio(kubeconfig, "", Kind{networking, kind})
		if err != nil {
			t.Fatal(err)
		}
		d := &delayed{API: api}
		w := New(Config[unstructured.Unstructured]{API: d, Kind: kind, Deadline: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
			Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx, epoch) }()
		t.Cleanup(func() { cancel(); <-ended })
		return d, w
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind, version string) dynamic.ResourceInterface {
		return client.Resource(gvrOf(kind, version)).Namespace(namespace)
	}
	routes := of("VirtualService", "v1")
	want := func(w *Writer[unstructured.Unstructured], o *unstructured.Unstructured, reason string) {
		r := Report{UID: string(o.GetUID()), Generation: o.GetGeneration(), Messages: []Message{{Code: "Invalid", Severity: "error"}}, Delivered: Delivered{Status: "True", Reason: reason, Since: time.Now()}}
		w.Want(map[Key]Desired[unstructured.Unstructured]{{namespace, o.GetName()}: r.Desired(namespace)})
	}
	eventually := func(objects dynamic.ResourceInterface, name, reason string) {
		t.Helper()
		got := ""
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
			o := read(t, objects, name)
			if got = says(o, DeliveredType); got == "True "+reason {
				return
			}
		}
		t.Fatalf("%s says %q, want True %s", name, got, reason)
	}
	d, w := begin("VirtualService", 1)
	_, filters := begin("EnvoyFilter", 1) // which is served in v1alpha3 alone
	route := read(t, routes, "cart")
	want(w, route, "First")
	want(filters, read(t, of("EnvoyFilter", "v1alpha3"), "f"), "First")
	eventually(routes, "cart", "First")
	eventually(of("EnvoyFilter", "v1alpha3"), "f", "First")
	if got := c.Kubectl(t, "", "-n", namespace, "get", "virtualservice", "cart", "-o", "jsonpath={.status.validationMessages[*].type.code} {.status.observedGeneration} {.spec.hosts}"); got != `NAV0001 1 ["cart"]` {
		t.Errorf("the object is %s", got)
	}

	conflicts := secondController(t, routes, route.DeepCopy(), 300, func(n int) {
		if n%3 == 0 {
			want(w, route, fmt.Sprint("R", n))
		}
	})
	eventually(routes, "cart", "R297")
	if got := says(read(t, routes, "cart"), "theirs"); got != "True T299" || conflicts == 0 {
		t.Errorf("the other condition is %q at the end, after %d conflicts", got, conflicts)
	}

	for n, late := range []bool{false, true} { // the late write comes while the successor waits, or after it has compared
		held, resumed := make(chan struct{}), make(chan struct{})
		d.hold(func() { close(held); d.hold(nil); <-resumed })
		want(w, route, fmt.Sprint("Stopped", n))
		<-held
		next, successor := begin("VirtualService", int64(n+2))
		want(successor, route, fmt.Sprint("Successor", n))
		if late {
			eventually(routes, "cart", fmt.Sprint("Successor", n))
		}
		w.Want(nil)
		close(resumed)
		eventually(routes, "cart", fmt.Sprint("Successor", n))
		d, w = next, successor
	}
	if p := w.Problems(); len(p) > 0 {
		t.Errorf("problems: %v", p)
	}
}

func read(t *testing.T, objects dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := objects.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// says returns the message of a condition; empty if it is absent.
func says(o *unstructured.Unstructured, of string) (said string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range list {
		if one := one.(map[string]any); one["type"] == of {
			said = fmt.Sprint(one["status"], " ", one["reason"])
		}
	}
	return said
}

// secondController writes its own condition so often, and looks each time that the one before is there. It begins with
// the object as it was once, and is called back before each write.
func secondController(t *testing.T, objects dynamic.ResourceInterface, o *unstructured.Unstructured, times int, before func(n int)) (conflicts int) {
	t.Helper()
	for n := 0; n < times; {
		before(n)
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if got, want := says(o, "theirs"), fmt.Sprint("True T", n-1); got != want && n > 0 || n == 0 && got != "" {
			t.Fatalf("its condition is %q, it has written %q: %v", got, want, conditions)
		}
		conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "theirs" })
		conditions = append(conditions, map[string]any{"type": "theirs", "status": "True", "reason": fmt.Sprint("T", n)})
		_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
		_, err := objects.UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldManager: "second"})
		switch {
		case err == nil:
			n++
		case apierrors.IsConflict(err):
			conflicts++
		default:
			t.Fatal(err)
		}
		o = read(t, objects, o.GetName())
	}
	return conflicts
}

func gvrOf(kind, version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: networking, Version: version, Resource: Kind{networking, kind}.resource()}
}
