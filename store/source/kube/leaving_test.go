package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/object"
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

// put and gone are events of a watch.
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

// emitted returns the next events of the source: "put Kind namespace/name", "delete ...", "synced".
func (d *desk) emitted() (all []string) {
	for _, part := range d.s.takeEvents(d.at) {
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

// expect checks how many objects are emitted as gone by the API server's word, and how many for another reason.
func (d *desk) expect(what string, deleted int, why object.Why, others int) {
	d.t.Helper()
	n := map[object.Why]int{}
	for _, part := range d.s.takeEvents(d.at) {
		for _, e := range part {
			if e.Op == object.Delete {
				n[e.Why]++
			}
		}
	}
	want := map[object.Why]int{object.Deleted: deleted, why: others}
	if why == object.Deleted {
		want[why] = deleted
	}
	maps.DeleteFunc(want, func(_ object.Why, n int) bool { return n == 0 })
	if !maps.Equal(n, want) {
		d.t.Errorf("%s: gone by reason %v, want %v", what, n, want)
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

// The API server reports removals by events, by a complete list, or by the selection of namespaces. Objects of a kind
// that is no longer served were not deleted by a user.
func TestReasonsOfRemovals(t *testing.T) {
	services := func(from, n int) []runtime.Object { return named("shop", from, n, aService) }
	d := newDesk(t)
	d.put("Service", services(0, 30)...)
	d.put(virtualServices.kind, services(0, 8)...)
	d.emitted()
	d.list("Service", services(0, 10)...)
	d.expect("a list without most", 20, object.Deleted, 0)
	d.gone("Service", services(0, 9)...)
	d.expect("events", 9, object.Deleted, 0)
	d.gone(virtualServices.kind, services(0, 4)...)
	d.expect("half of a kind", 4, object.Deleted, 0)
	for range missing {
		d.s.discovered(map[kindID]kind{}, nil)
	}
	d.expect("the kind is not served any more", 0, object.Undefined, 4)
	d.emitted()
	if d.s.kinds[virtualServices.id()] != nil || len(d.s.lost) > 0 {
		t.Errorf("the kind is still read, or a reason is kept: %v", d.s.lost)
	}
}

// Synced names the kinds that were listed in full, and again when they are others.
func TestSyncedNamesKinds(t *testing.T) {
	d := newDesk(t)
	is := func(id object.ID) bool { return id.Kind == virtualServices.kind && id.Group == virtualServices.group }
	if !slices.ContainsFunc(d.s.listing, is) {
		t.Errorf("VirtualServices are not among %v", d.s.listing)
	}
	for range missing {
		d.s.discovered(map[kindID]kind{}, nil)
	}
	if got := d.emitted(); !slices.Equal(got, []string{"synced"}) || slices.ContainsFunc(d.s.listing, is) {
		t.Errorf("without their definition: emitted %v, kinds %v", got, d.s.listing)
	}
	gateways := kind{group: "networking.istio.io", version: "v1", kind: "Gateway", resource: "gateways", namespaced: true, expected: &corev1.ConfigMap{}}
	d.s.kinds[gateways.id()] = d.s.newFollower(gateways)
	if got := d.emitted(); len(got) > 0 {
		t.Errorf("a kind that was not listed yet: %v", got)
	}
	d.list("Gateway")
	if got := d.emitted(); !slices.Equal(got, []string{"synced"}) {
		t.Errorf("a kind was listed: %v", got)
	}
}

// Deletions of configuration are collected, and emitted once the API server has answered whether their kind still has a
// definition; without one they are reported as deleted with it. Puts, and deletions of other kinds, do not wait for
// them; an object that returns is not deleted.
func TestDeletionsWaitForTheDefinition(t *testing.T) {
	d := newDesk(t)
	d.s.Grace = 250 * time.Millisecond
	entries := func(from, n int) []runtime.Object { return named("shop", from, n, aService) }
	defined := map[kindID]kind{virtualServices.id(): virtualServices}
	d.put("Service", entries(0, 8)...)
	d.put(virtualServices.kind, entries(0, 6)...)
	d.emitted()
	gone := func(what string, want ...string) {
		t.Helper()
		if got := d.emitted(); !slices.Equal(got, want) {
			t.Errorf("%s: emitted %v, want %v", what, got, want)
		}
	}
	asked := func(what string, want int) []object.ID {
		t.Helper()
		gone(what)
		ids := d.s.ripe()
		if len(ids) != want {
			t.Fatalf("%s: %d are asked about, want %d", what, len(ids), want)
		}
		return ids
	}
	for i := range 6 {
		d.gone(virtualServices.kind, entries(i, 1)...)
		asked("one of six", 0)
		if wait, some := d.s.waits(d.at); !some || wait > d.s.Grace {
			t.Errorf("waits for %v, %v", wait, some)
		}
		d.at = d.at.Add(40 * time.Millisecond)
	}
	d.gone("Service", entries(7, 1)...)
	gone("another kind", "delete Service shop/o7")
	d.at = d.at.Add(250 * time.Millisecond)
	ids := asked("together", 6)
	if _, some := d.s.waits(d.at); some {
		t.Error("something waits beside the answer")
	}
	d.put(virtualServices.kind, entries(5, 1)...)
	gone("one is back meanwhile", "put VirtualService shop/o5")
	d.s.confirmed(ids, nil)
	d.expect("the definition goes", 0, object.Undefined, 5)
	d.put(virtualServices.kind, entries(0, 6)...)
	d.emitted()
	d.gone(virtualServices.kind, entries(0, 3)...)
	asked("half of the kind", 0)
	d.at = d.at.Add(250 * time.Millisecond)
	d.s.confirmed(asked("half of the kind", 3), defined)
	d.expect("the definition is there", 3, object.Deleted, 0)
	if len(d.s.lost) > 0 {
		t.Errorf("reasons are kept: %v", d.s.lost)
	}
	d.put(virtualServices.kind, entries(1, 500)...)
	d.emitted()
	began := d.at
	for i := range 400 { // deletions that do not end
		d.gone(virtualServices.kind, entries(i+1, 1)...)
		d.put(virtualServices.kind, entries(i+501, 1)...)
		d.at = d.at.Add(10 * time.Millisecond)
		if d.emitted(); len(d.s.ripe()) > 0 {
			if waited := d.at.Sub(began); waited > graces*d.s.Grace+10*time.Millisecond {
				t.Errorf("waited for %v", waited)
			}
			return
		}
	}
	t.Error("they never go")
}

// A list that is older than received objects removes nothing. If no newer one ever arrives, objects that it lacks have
// the reason Rewound.
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
	d.expect("the cluster was restored from a backup", 0, object.Rewound, 1)
	if err := d.store("Service").Replace([]any{versioned("a", "90"), versioned("b", "111")}, "111"); err != nil {
		t.Error(err)
	}
	if got := d.emitted(); !slices.Equal(got, []string{"put Service shop/b"}) {
		t.Errorf("a newer list: emitted %v", got)
	}
	if err := d.store("Service").Replace([]any{versioned("a", "90")}, "111"); err != nil {
		t.Error(err)
	}
	d.expect("a list of the same revision", 1, object.Deleted, 0)
}

// A list whose last page reports further objects is refused.
func TestPartialListsAreRefused(t *testing.T) {
	remaining := int64(3)
	page := &corev1.ServiceList{ListMeta: metav1.ListMeta{RemainingItemCount: &remaining}}
	if err := isWhole(page); !errors.Is(err, errPartial) {
		t.Errorf("a part: %v", err)
	}
	page.Continue = "more"
	if err := isWhole(page); err != nil {
		t.Errorf("a page that is followed by another: %v", err)
	}
	page.Continue, remaining = "", 0
	if err := isWhole(page); err != nil {
		t.Errorf("the last page: %v", err)
	}
}
