package kube

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// leader is the ingester behind a source, in the state of a leader that has compared everything; it counts the records
// to write.
type leader struct {
	*desk
	state   *ingest.State
	after   int64
	emitted int // events
}

func newLeader(t testing.TB) *leader {
	d := newDesk(t)
	l := &leader{desk: d, state: ingest.NewState(ingest.Options{Sources: []origin.Origin{d.s.origin}})}
	return l
}

// lead begins a term; all objects so far are written.
func (l *leader) lead() {
	l.state.Step(ingest.Objects(append(slices.Concat(l.s.takeEvents(l.at)...), object.Event{Op: object.Synced, ID: object.ID{Origin: l.s.origin}})))
	l.state.Step(ingest.Gained{Epoch: kv.Epoch{}})
	l.write(l.state.Step(ingest.Loaded{Have: map[model.Key]model.Hash{}, Secrets: map[model.Key]*model.Secret{}}))
}

// write executes the writes of Step, and returns the records.
func (l *leader) write(effects []ingest.Effect) (written []string) {
	for len(effects) > 0 {
		next := []ingest.Effect(nil)
		for _, effect := range effects {
			switch e := effect.(type) {
			case ingest.Write:
				for _, r := range e.Batch.Puts {
					written = append(written, "put "+r.Meta().Key.Kind.String()+" "+r.Meta().Key.Name)
				}
				for _, key := range e.Batch.Deletes {
					written = append(written, "delete "+key.Kind.String()+" "+key.Name)
				}
				l.after++
				next = append(next, l.state.Step(ingest.Written{After: l.after})...)
			case ingest.Wait:
				next = append(next, l.state.Step(ingest.Due{})...)
			}
		}
		effects = next
	}
	return written
}

// change emits the next events of the source, and returns the records written for them.
func (l *leader) change() (written []string) {
	for _, part := range l.s.takeEvents(l.at) {
		l.emitted += len(part)
		written = append(written, l.write(l.state.Step(ingest.Objects(part)))...)
	}
	return written
}

func podAs(name, address string, ready, ending bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "n"}}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if p.Status.PodIP = address; ready {
		condition.Status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{condition}
	if ending {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e6, 0)}
	}
	return p
}

func sliceAs(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, port := "http", int32(80)
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: endpoints}
}

func endpointAs(pod, address string, ready, ending bool) discoveryv1.Endpoint {
	serving := true
	return discoveryv1.Endpoint{Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: pod},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &ending}}
}

// Rolling one Pod writes two records for each change of it: its Workload and its EndpointSlice. A change of fields that
// no record reads writes nothing.
func TestWhatARollWrites(t *testing.T) {
	l := newLeader(t)
	l.put("Namespace", aNamespace("shop", false))
	l.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	l.put("Service", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1",
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
	l.put("Pod", podAs("old", "10.244.0.1", true, false), podAs("other", "10.244.0.9", true, false))
	other := endpointAs("other", "10.244.0.9", true, false)
	l.put("EndpointSlice", sliceAs(endpointAs("old", "10.244.0.1", true, false), other))
	l.lead()
	writes := func(what string, want ...string) {
		t.Helper()
		got := l.change()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for i := range 3 { // status alone, heartbeats, times
		p := podAs("old", "10.244.0.1", true, false)
		p.ResourceVersion, p.Generation, p.Status.Message = fmt.Sprint(i+10), int64(i), fmt.Sprint("still here ", i)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: int32(i)}}
		l.put("Pod", p)
		l.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: fmt.Sprint(i)}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Message: fmt.Sprint(i)}}}})
		s := sliceAs(endpointAs("old", "10.244.0.1", true, false), other)
		s.Annotations, s.ResourceVersion = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": fmt.Sprint(i)}, fmt.Sprint(i)
		l.put("EndpointSlice", s)
		writes("status alone")
	}
	if l.emitted > 0 {
		t.Errorf("%d events are emitted of statuses that no record reads", l.emitted)
	}
	l.put("Pod", podAs("new", "", false, false))
	writes("the new Pod is scheduled")
	l.put("Pod", podAs("new", "10.244.0.2", false, false))
	l.put("EndpointSlice", sliceAs(endpointAs("new", "10.244.0.2", false, false), endpointAs("old", "10.244.0.1", true, false), other))
	writes("it has an address", "put Endpoints web-1", "put Workload new")
	l.put("Pod", podAs("new", "10.244.0.2", true, false))
	l.put("EndpointSlice", sliceAs(endpointAs("new", "10.244.0.2", true, false), endpointAs("old", "10.244.0.1", true, false), other))
	writes("it is ready", "put Endpoints web-1", "put Workload new")
	l.put("Pod", podAs("old", "10.244.0.1", true, true))
	l.put("EndpointSlice", sliceAs(endpointAs("new", "10.244.0.2", true, false), endpointAs("old", "10.244.0.1", false, true), other))
	writes("the old one is ending", "put Endpoints web-1", "put Workload old")
	l.gone("Pod", podAs("old", "", false, false))
	l.put("EndpointSlice", sliceAs(endpointAs("new", "10.244.0.2", true, false), other))
	writes("it is gone", "delete Workload old", "put Endpoints web-1")
}

// BenchmarkPods measures the memory of a leader's source and ingester for each Pod of a Service.
func BenchmarkPods(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(heapOfPods(b), "heap-B/pod")
		b.ReportMetric(0, "ns/op")
	}
}

// heapOfPods returns the heap of a leader for each of ten thousand Pods, in bytes, with their endpoints and the records
// of both, after these were written.
func heapOfPods(t testing.TB) float64 {
	const pods, perSlice = 10000, 100
	before := heap()
	l := newLeader(t)
	l.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	for i := 0; i < pods; i += perSlice {
		var endpoints []discoveryv1.Endpoint
		for j := i; j < i+perSlice; j++ {
			name, address := fmt.Sprint("web-5d4f8c7b9-", j), fmt.Sprintf("10.244.%d.%d", j/250, j%250)
			p := realisticPod(name, address)
			p.Labels["version"] = []string{"v1", "v2"}[j%2]
			l.put("Pod", p)
			endpoints = append(endpoints, endpointAs(name, address, true, false))
		}
		s := sliceAs(endpoints...)
		s.Name = fmt.Sprint("web-", i)
		l.put("EndpointSlice", s)
	}
	l.lead()
	each := float64(heap()-before) / pods
	runtime.KeepAlive(l)
	return each
}

// realisticPod returns a Pod like those of a Deployment with a sidecar.
func realisticPod(name, address string) *corev1.Pod {
	p := podAs(name, address, true, false)
	p.UID, p.ResourceVersion = "0f9a3ac2-7b7e-4d6f-9a55-0d3f3a6d6d10", "12345"
	p.Labels = map[string]string{"app": "web", "version": "v1", "pod-template-hash": "5d4f8c7b9", "security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": "web", "service.istio.io/canonical-revision": "v1"}
	p.Annotations = map[string]string{"istio.io/rev": "default", "sidecar.istio.io/status": `{"initContainers":["istio-init"],"containers":["istio-proxy"]}`}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9", UID: "5f1f3ac2-7b7e-4d6f-9a55-0d3f3a6d6d10"}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}, {Name: "istio-proxy", Image: "proxy:1"}}
	p.Spec.ServiceAccountName = "web"
	return p
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Ten thousand invalid objects in one namespace, and one valid object: the valid one is served, the leader's list of
// problems is bounded and counts the rest, each object is normalised once, and nothing is written for them. After they
// are repaired each is written once, and no problem is left.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestTenThousandInvalidObjects(t *testing.T) {
	const n = 10_000
	l := newLeader(t)
	l.put("Namespace", aNamespace("shop", false))
	l.lead()
	rule := func(name, timeout string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
			"metadata": map[string]any{"namespace": "shop", "name": name},
			"spec": map[string]any{"hosts": []any{name + ".example.com"}, "http": []any{map[string]any{"timeout": timeout,
				"route": []any{map[string]any{"destination": map[string]any{"host": "web"}}}}}}}}
	}
	before := l.state.Stats().Normalised
	for i := range n {
		l.put("VirtualService", rule(fmt.Sprint("v", i), "soon"))
	}
	l.put("VirtualService", rule("good", "1s"))
	if written := l.change(); !slices.Equal(written, []string{"put VirtualService good"}) {
		t.Fatalf("written %.200q", written)
	}
	if did := l.state.Stats().Normalised - before; did != n+1 {
		t.Errorf("%d objects were normalised", did)
	}
	all := l.state.Problems()
	if last := all[len(all)-1]; len(all) > problem.MostOfNamespace+1 || !slices.ContainsFunc(all, func(p object.Problem) bool {
		return p.ID.Kind == "Namespace" && p.ID.Name == "shop" && strings.HasPrefix(p.Message, fmt.Sprint(n-problem.MostOfNamespace, " more problems"))
	}) {
		t.Errorf("%d problems, the last one is %v", len(all), last)
	}
	for i := range n {
		l.put("VirtualService", rule(fmt.Sprint("v", i), "2s"))
	}
	if written := l.change(); len(written) != n || len(l.state.Problems()) != 0 {
		t.Errorf("mended: %d are written, problems %v", len(written), l.state.Problems())
	}
}
