package kube

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// desk is a source without an API server: the test is the Reflector.
type desk struct {
	t  testing.TB
	s  *Source
	at time.Time
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	s := newSource(Config{Grace: -1}, nil)
	for _, k := range append([]kind{namespaces}, s.builtIn()...) {
		s.kinds[k.id()] = s.newFollower(k)
	}
	s.kinds[virtualServices.id()] = s.newFollower(virtualServices)
	s.discover, s.settled, s.selection.ready = true, true, true
	d := &desk{t, s, time.Unix(1e6, 0)}
	for f := range s.followers() {
		d.list(f.kind.kind)
	}
	if got := d.emitted(); !slices.Equal(got, []string{"synced"}) {
		t.Fatalf("emitted %v", got)
	}
	return d
}

var virtualServices = kind{group: "networking.istio.io", version: "v1", kind: "VirtualService", resource: "virtualservices", namespaced: true, expected: &corev1.ConfigMap{}}

func (d *desk) store(kind string) store {
	for f := range d.s.followers() {
		if f.kind.kind == kind {
			return store{f, f.kind}
		}
	}
	d.t.Fatalf("no %s", kind)
	return store{}
}

// list is a complete list of a kind.
func (d *desk) list(kind string, objects ...runtime.Object) {
	var all []any
	for _, o := range objects {
		all = append(all, o)
	}
	if err := d.store(kind).Replace(all, ""); err != nil {
		d.t.Fatal(err)
	}
}

// put and gone are what a watch says.
func (d *desk) put(kind string, objects ...runtime.Object) {
	for _, o := range objects {
		d.store(kind).kind.strip(o)
		if err := d.store(kind).Update(o); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *desk) gone(kind string, objects ...runtime.Object) {
	for _, o := range objects {
		if err := d.store(kind).Delete(o); err != nil {
			d.t.Fatal(err)
		}
	}
}

// emitted is what the source emits next: "put Kind namespace/name", "delete ...", "synced".
func (d *desk) emitted() (all []string) {
	for _, part := range d.s.take(d.at) {
		for _, e := range part {
			switch e.Op {
			case object.Put:
				all = append(all, "put "+e.ID.String())
			case object.Delete:
				all = append(all, "delete "+e.ID.String())
			case object.Synced:
				all = append(all, "synced")
			case object.Broken, object.Forget:
				all = append(all, fmt.Sprint(e.Op))
			}
		}
	}
	return all
}

// expect checks how many objects are emitted as gone, and how many are held then.
func (d *desk) expect(what string, gone, held int) {
	d.t.Helper()
	n := 0
	for _, e := range d.emitted() {
		if len(e) > 6 && e[:6] == "delete" {
			n++
		}
	}
	if got := len(d.s.Held()); n != gone || got != held {
		d.t.Errorf("%s: %d go and %d are held, want %d and %d", what, n, got, gone, held)
	}
}

func named(namespace string, from, n int, as func(metav1.ObjectMeta) runtime.Object) (all []runtime.Object) {
	for i := range n {
		all = append(all, as(metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("o", from+i), Labels: map[string]string{"app": "web"}}))
	}
	return all
}

func aService(m metav1.ObjectMeta) runtime.Object { return &corev1.Service{ObjectMeta: m} }

func aNamespace(name string, ending bool) runtime.Object {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ending {
		n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e6, 0)}
	}
	return n
}

func aPod(m metav1.ObjectMeta) runtime.Object {
	return &corev1.Pod{ObjectMeta: m, Status: corev1.PodStatus{PodIP: "10.244.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// aSlice is an EndpointSlice of Service o0 with Pods o0 to o<n-1>.
func aSlice(namespace string, n int) runtime.Object {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "o0-1", Labels: map[string]string{discoveryv1.LabelServiceName: "o0"}}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprint("o", i)}})
	}
	return s
}

// Mass removals are held: in one list, by a watch one after the other within ten minutes, and where a kind is not served any more. What comes
// back, or was accepted, is held no more.
func TestMassRemovalsAreHeld(t *testing.T) {
	services := func(from, n int) []runtime.Object { return named("shop", from, n, aService) }
	begin := func(n int) *desk {
		d := newDesk(t)
		d.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		d.put("Service", services(0, n)...)
		d.emitted()
		return d
	}
	d := begin(30)
	d.list("Service", services(0, 10)...)
	d.expect("a list without most", 0, 20)
	d.put("Service", services(10, 5)...)
	d.expect("some come back", 0, 15)
	if p := d.s.Problems(); len(p) != 1 || p[0].Code != problem.Held || p[0].ID.Kind != "Service" {
		t.Errorf("problems %v", p)
	}
	held := d.s.Held()
	if d.s.Release(t.Context(), held[1:]) || d.s.Release(t.Context(), nil) {
		t.Error("others were accepted than are held")
	}
	if !d.s.Release(t.Context(), held) {
		t.Error("what is held is not accepted")
	}
	d.expect("accepted", 15, 0)
	d.put("Service", services(29, 1)...)
	if got := d.emitted(); !slices.Equal(got, []string{"put Service shop/o29"}) {
		t.Errorf("one that was accepted comes back: %v", got)
	}

	for pause, want := range map[time.Duration][2]int{10 * time.Second: {15, 9}, time.Minute: {24, 0}, 10 * time.Minute: {24, 0}} {
		d, gone := begin(30), 0
		for i := range 24 {
			d.at = d.at.Add(pause)
			d.gone("Service", services(i, 1)...)
			gone += len(d.emitted())
		}
		if held := len(d.s.Held()); gone != want[0] || held != want[1] {
			t.Errorf("one after the other, %v between them: %d go and %d are held, want %v", pause, gone, held, want)
		}
	}
	few := begin(3)
	few.list("Service")
	few.expect("a few", 3, 0)

	d = begin(8)
	d.put(virtualServices.kind, services(0, 8)...)
	d.emitted()
	for range missing {
		d.s.discovered(map[kindID]kind{}, nil)
	}
	d.expect("the kind is not served any more", 0, 8)
	if d.s.kinds[virtualServices.id()] == nil {
		t.Fatal("what is held of a kind is forgotten")
	}
	d.s.Release(t.Context(), d.s.Held())
	if d.expect("accepted", 8, 0); d.s.kinds[virtualServices.id()] != nil {
		t.Error("the kind is still read")
	}
}

// What the end of a namespace explains goes: in Kubernetes its objects go first, while it is terminating; where that was not seen, because
// everything was listed again, they are held until the list of the namespaces comes.
func TestEndOfNamespaceExplains(t *testing.T) {
	begin := func() *desk {
		d := newDesk(t)
		d.put("Namespace", aNamespace("shop", false), aNamespace("other", false))
		d.put("Service", append(named("shop", 0, 20, aService), named("other", 0, 5, aService)...)...)
		d.emitted()
		return d
	}
	d := begin()
	d.put("Namespace", aNamespace("shop", true))
	d.gone("Service", named("shop", 0, 20, aService)...)
	d.expect("the namespace is terminating", 20, 0)
	d.gone("Namespace", aNamespace("shop", true))
	d.expect("and goes", 1, 0)
	d = begin()
	d.list("Service", named("other", 0, 5, aService)...)
	d.expect("the list of the namespaces has not come", 0, 20)
	d.list("Namespace", aNamespace("other", false))
	d.expect("it comes", 21, 0)
	d = begin()
	d.list("Service", named("other", 0, 5, aService)...)
	d.list("Namespace", aNamespace("shop", false))
	d.expect("another one went", 1, 20)
	// Objects of namespaces that are not selected any more count as gone.
	d = begin()
	d.s.selection.use("discoverySelectors: [{matchLabels: {mesh: 'yes'}}]")
	d.s.mu.Lock()
	d.s.reselected(d.s.selection.selected(), false)
	d.s.mu.Unlock()
	d.expect("nothing is selected", 0, 25)
}

// An EndpointSlice that is emptied while its Pods are ready is held; Pods and slices come in either order.
func TestEmptiedSliceIsHeld(t *testing.T) {
	begin := func() *desk {
		d := newDesk(t)
		d.put("Service", named("shop", 0, 1, aService)...)
		d.put("Pod", named("shop", 0, 10, aPod)...)
		d.put("EndpointSlice", aSlice("shop", 10))
		d.emitted()
		return d
	}
	d := begin()
	d.put("EndpointSlice", aSlice("shop", 0))
	if got := d.emitted(); len(got) != 0 || len(d.s.Held()) != 1 {
		t.Errorf("emptied: emitted %v, held %v", got, d.s.Held())
	}
	if p := d.s.Problems(); len(p) != 1 || p[0].ID.Kind != "EndpointSlice" || p[0].ID.Name == "" {
		t.Errorf("problems %v", p)
	}
	if !d.s.Release(context.Background(), d.s.Held()) {
		t.Error("it is not accepted")
	}
	if got := d.emitted(); !slices.Equal(got, []string{"put EndpointSlice shop/o0-1"}) {
		t.Errorf("accepted: emitted %v", got)
	}
	d = begin()
	d.put("EndpointSlice", aSlice("shop", 1)) // scaled down: the slice comes first
	d.expect("the slice came first", 0, 1)
	d.gone("Pod", named("shop", 1, 9, aPod)...)
	d.expect("the Pods came later", 9, 0)
	d = begin()
	d.gone("Pod", named("shop", 1, 9, aPod)...)
	d.expect("the Pods came first", 0, 9)
	d.put("EndpointSlice", aSlice("shop", 1))
	d.expect("the slice came later", 9, 0)
}

// Deletions of configuration that come one after the other are judged together: those of a definition that is deleted, of a few kinds of which
// nothing is added up. What is put, and what is gone of other kinds, does not wait for them; one that comes back is none.
func TestDeletionsGather(t *testing.T) {
	d := newDesk(t)
	d.s.Grace = 250 * time.Millisecond
	entries := func(from, n int) []runtime.Object { return named("shop", from, n, aService) }
	d.put("Service", entries(0, 8)...)
	d.put(virtualServices.kind, entries(0, 6)...)
	d.emitted()
	gone := func(what string, want ...string) {
		t.Helper()
		if got := d.emitted(); !slices.Equal(got, want) {
			t.Errorf("%s: emitted %v, want %v", what, got, want)
		}
	}
	for i := range 6 {
		d.gone(virtualServices.kind, entries(i, 1)...)
		gone("one of six")
		if wait, some := d.s.waits(d.at); !some || wait > d.s.Grace {
			t.Errorf("waits for %v, %v", wait, some)
		}
		d.at = d.at.Add(40 * time.Millisecond)
	}
	d.gone("Service", entries(7, 1)...)
	gone("another kind", "delete Service shop/o7")
	d.at = d.at.Add(250 * time.Millisecond)
	d.expect("together", 0, 6)
	if _, some := d.s.waits(d.at); some {
		t.Error("something waits")
	}
	d.put(virtualServices.kind, entries(0, 6)...)
	d.emitted()
	d.gone(virtualServices.kind, entries(0, 2)...)
	gone("two")
	d.put(virtualServices.kind, entries(1, 1)...)
	gone("one is back", "put VirtualService shop/o1")
	d.at = d.at.Add(250 * time.Millisecond)
	gone("the other one", "delete VirtualService shop/o0")
	d.put(virtualServices.kind, entries(1, 500)...)
	d.emitted()
	for i := range 400 { // deletions that do not end
		d.gone(virtualServices.kind, entries(i+1, 1)...)
		d.put(virtualServices.kind, entries(i+501, 1)...)
		if d.at = d.at.Add(10 * time.Millisecond); slices.Contains(d.emitted(), "delete VirtualService shop/o1") {
			if waited := time.Duration(i) * 10 * time.Millisecond; waited > graces*d.s.Grace {
				t.Errorf("waited for %v", waited)
			}
			return
		}
	}
	t.Error("they never go")
}

// A list that is older than what was seen takes nothing away, until there is never a newer one.
func TestStaleListsAreRefused(t *testing.T) {
	d := newDesk(t)
	versioned := func(name, version string) runtime.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}
	}
	d.put("Service", versioned("a", "90"), versioned("b", "100"))
	d.gone("Service", versioned("c", "110"))
	d.emitted()
	for i := range staleLists {
		if err := d.store("Service").Replace([]any{versioned("a", "90")}, "109"); err == nil || len(d.emitted()) > 0 {
			t.Fatalf("list %d is believed", i)
		}
	}
	if err := d.store("Service").Replace([]any{versioned("a", "90")}, "109"); err != nil {
		t.Error(err)
	}
	if got := d.emitted(); !slices.Equal(got, []string{"delete Service shop/b"}) {
		t.Errorf("the cluster was restored from a backup: emitted %v", got)
	}
	if err := d.store("Service").Replace([]any{versioned("a", "90"), versioned("b", "111")}, "111"); err != nil {
		t.Error(err)
	}
	if got := d.emitted(); !slices.Equal(got, []string{"put Service shop/b"}) {
		t.Errorf("a newer list: emitted %v", got)
	}
}
