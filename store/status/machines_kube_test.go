//go:build kube

package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/machines"
)

// term is one leader's term: its decisions about machines, and the writer that executes them. Its clock is the test's.
type term struct {
	t        *testing.T
	objects  dynamic.ResourceInterface
	api      *WorkloadEntries
	writer   *Writer[WorkloadEntry]
	registry *machines.Registry
	now      time.Time
	reports  []machines.Machine
	end      func()
}

const machineGrace = 10 * time.Second

func newTerm(t *testing.T, kubeconfig string, epoch int64, objects dynamic.ResourceInterface) *term {
	t.Helper()
	api, err := NewWorkloadEntries(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	w := New(Config[WorkloadEntry]{API: api, Kind: "WorkloadEntry", Deadline: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx, epoch) // its error is the context's
	}()
	end := func() { cancel(); <-ended }
	t.Cleanup(end)
	return &term{t: t, objects: objects, api: api, writer: w, registry: machines.NewRegistry(machineGrace), now: time.Now(), end: end}
}

// until decides again and again, until an entry is as it should be; nil: it is not there.
func (m *term) until(what, name string, is func(*unstructured.Unstructured) bool) (entry *unstructured.Unstructured) {
	m.t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		there, _ := m.api.There()
		all, _, _ := m.registry.Step(m.now, m.reports, there)
		m.writer.Want(Machines(all))
		var err error
		if entry, err = m.objects.Get(m.t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			entry = nil
		} else if err != nil {
			m.t.Fatal(err)
		}
		if is(entry) {
			return entry
		}
	}
	m.t.Fatalf("%s: it is %v; problems: %v", what, entry, m.writer.Problems())
	return nil
}

func kubeMachine(namespace, name, group string) machines.Machine {
	return machines.Machine{Namespace: namespace, Name: name, Account: "vm", Group: group, Labels: map[string]string{"app": "web"}, Checked: true, Replica: "a", Connected: time.Now(),
		Spec: &networkingv1.WorkloadEntry{Address: strings.TrimPrefix(name, "vms-"), ServiceAccount: "vm", Labels: map[string]string{"app": "web"}, Ports: map[string]uint32{"http": 8080}}}
}

func istioObject(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/v1beta1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
}

// With the documented rights only: the entry of a machine is created, with its WorkloadGroup as owner, and its health
// in the status. The next leader adopts the same object, and deletes it after the grace. An entry written by hand under
// a machine's name, and one without its WorkloadGroup, are problems. An object that has changed since it was read is
// not deleted.
func TestKubeMachines(t *testing.T) {
	c := controlplane.Shared(t)
	namespace, kubeconfig := c.Namespace(t), rights.Documented(t, c)
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	objects := client.Resource(gvrOf("WorkloadEntry", "v1beta1")).Namespace(namespace)
	group, err := client.Resource(gvrOf("WorkloadGroup", "v1beta1")).Namespace(namespace).Create(t.Context(), istioObject("WorkloadGroup", "vms", map[string]any{"template": map[string]any{"serviceAccount": "vm"}}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const name, hand, orphan = "vms-10.0.0.1", "vms-10.0.0.2", "none-10.0.0.3"
	if _, err := objects.Create(t.Context(), istioObject("WorkloadEntry", hand, map[string]any{"address": "10.9.9.9"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := newTerm(t, kubeconfig, 1, objects)
	m := kubeMachine(namespace, name, "vms")
	first.reports = []machines.Machine{m, kubeMachine(namespace, hand, "vms"), kubeMachine(namespace, orphan, "none")}
	made := first.until("it is made", name, func(e *unstructured.Unstructured) bool { return e != nil })
	address, _, _ := unstructured.NestedString(made.Object, "spec", "address")
	if o := made.GetOwnerReferences(); address != "10.0.0.1" || len(o) != 1 || o[0].UID != group.GetUID() || made.GetAnnotations()[EpochAnnotation] != "1" || made.GetLabels()["app"] != "web" {
		t.Errorf("it is %v", made)
	}
	first.reports[0].Health = &machines.Health{Message: "down", At: time.Now()}
	first.until("its health", name, func(e *unstructured.Unstructured) bool {
		return says(e, machines.Healthy) == "False <nil>" && strings.Contains(fmt.Sprint(first.writer.Problems()), orphan)
	})
	if p := fmt.Sprint(first.writer.Problems()); !strings.Contains(p, "its WorkloadGroup is not there: "+namespace+"/none") || !strings.Contains(p, hand) || strings.Contains(p, name+":") {
		t.Errorf("problems: %s", p)
	}
	first.end()

	second := newTerm(t, kubeconfig, 2, objects)
	m.Replica, m.Health = "b", &machines.Health{Healthy: true, At: time.Now()}
	second.reports = []machines.Machine{m}
	adopted := second.until("the next leader takes it over", name, func(e *unstructured.Unstructured) bool {
		return e != nil && e.GetAnnotations()[machines.ControllerAnnotation] == "b" && says(e, machines.Healthy) == "True <nil>"
	})
	if adopted.GetUID() != made.GetUID() || adopted.GetAnnotations()[EpochAnnotation] != "2" {
		t.Errorf("it is another one, or of another epoch: %v", adopted)
	}
	second.reports = nil
	left := second.until("the machine has left", name, func(e *unstructured.Unstructured) bool {
		return e != nil && e.GetAnnotations()[machines.DisconnectedAtAnnotation] != ""
	})
	stale := &WorkloadEntry{Unstructured: *adopted, act: remove}
	if _, err := second.api.Write(t.Context(), Key{namespace, name}, stale); !errors.Is(err, ErrConflict) {
		t.Errorf("deleted as it was before: %v", err)
	}
	if got := read(t, objects, name); got.GetUID() != left.GetUID() {
		t.Errorf("it is %v", got)
	}
	second.now = second.now.Add(machineGrace)
	second.until("the grace is over", name, func(e *unstructured.Unstructured) bool { return e == nil })
	if got := read(t, objects, hand); len(got.GetAnnotations()) > 0 || got.GetGeneration() != 1 {
		t.Errorf("the one that was written by hand is %v", got)
	}
}
