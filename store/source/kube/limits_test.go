package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// wrong is the messages of problems about one object; an empty name: of all about a kind.
func (d *desk) wrong(kind, name string) (all []string) {
	for _, p := range d.s.Problems() {
		if p.ID.Kind == kind && p.ID.Name == name && p.Code == problem.NotAllowed {
			all = append(all, p.Message)
		}
	}
	return all
}

func (d *desk) emits(want ...string) {
	d.t.Helper()
	if got := d.emitted(); !slices.Equal(got, want) {
		d.t.Errorf("emitted %v, want %v", got, want)
	}
}

func service(name string, label string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"l": label}}}
}

// An object that is too large is left out and reported. Its emitted state stays, also if a list contains it, and it is
// emitted again once it is small, even if it is unchanged. One that was never emitted is forgotten when it is deleted.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestLargeObjectIsLeftOut(t *testing.T) {
	d := newDesk(t)
	d.s.Limits.Object = 1000
	large := strings.Repeat("x", 2000)
	d.put("Service", service("a", "1"), service("b", "1"))
	d.emits("put Service shop/a", "put Service shop/b")
	d.put("Service", service("a", large), service("c", large))
	d.emits("3", "3")
	d.list("Service", service("a", large), service("b", "1"), service("c", large))
	d.emits()
	for _, name := range []string{"a", "c"} {
		if got := d.wrong("Service", name); len(got) != 1 || !strings.Contains(got[0], "at most 1000 are read") {
			t.Errorf("problems of %s: %q", name, got)
		}
	}
	d.put("Service", service("a", "1"))
	d.emits("put Service shop/a")
	d.gone("Service", service("c", large))
	d.emits("delete Service shop/c")
	if got := append(d.wrong("Service", "a"), d.wrong("Service", "c")...); len(got) != 0 {
		t.Errorf("problems %q", got)
	}
	d.put("Service", service("a", large))
	d.emits("3")
	d.list("Service", service("b", "1"))
	d.emits("delete Service shop/a")
	if got := d.wrong("Service", "a"); len(got) != 0 {
		t.Errorf("problems %q", got)
	}
}

// If a kind or the cluster is full, existing objects can change and be deleted, and new ones are left out: reported by
// name up to a number, and counted beyond that. A deletion frees room.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestFullClusterTakesNoMore(t *testing.T) {
	d := newDesk(t)
	d.s.Limits.Objects = 3
	d.put("Service", service("a", "1"), service("b", "1"), service("c", "1"))
	d.emitted()
	d.put("Service", service("d", "1"), service("a", "2"))
	d.emits("3", "put Service shop/a")
	if got := d.wrong("Service", "d"); len(got) != 1 || !strings.Contains(got[0], "there are 3 others of its kind") {
		t.Errorf("problems %q", got)
	}
	d.gone("Service", service("b", "1"))
	d.put("Service", service("d", "1"))
	d.emits("put Service shop/d", "delete Service shop/b")
	d.list("Service", service("e", "1"), service("f", "1"), service("g", "1")) // others in their place
	if got := d.emitted(); len(got) != 6 {
		t.Errorf("emitted %v", got)
	}
	for i := range maxLeft + 50 {
		d.put("Service", service(fmt.Sprint("more-", i), "1"))
	}
	if got := d.emitted(); len(got) != maxLeft {
		t.Errorf("%d are emitted", len(got))
	}
	if got := d.wrong("Service", ""); len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprint(maxLeft+50-100, " more are not read")) || len(d.s.Problems()) != 101 {
		t.Errorf("%d problems, %q", len(d.s.Problems()), got)
	}
	d.list("Service", service("e", "1"))
	if d.emitted(); len(d.s.Problems()) != 0 {
		t.Errorf("problems %v", d.s.Problems())
	}
	d.s.Limits = Limits{Object: 1000, Objects: 100, Bytes: d.s.bytes() + 2*objectCost}
	d.put("Service", service("x", "1"), service("y", "1"))
	if got := d.wrong("Service", "y"); len(got) != 1 || len(d.wrong("Service", "x")) != 0 || !strings.Contains(got[0], "the objects of this cluster") {
		t.Errorf("problems %q", got)
	}
}

// Held objects count towards the limits: a cluster that reports one set of objects after another cannot fill the
// memory.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestHeldObjectsCount(t *testing.T) {
	d := newDesk(t)
	all := func(round int) (services []*corev1.Service) {
		for i := range 100 {
			services = append(services, service(fmt.Sprintf("s-%d-%d", round, i), "1"))
		}
		return services
	}
	d.s.Limits.Bytes = 300 * (objectCost + 200)
	for round := range 20 {
		for _, s := range all(round) {
			d.put("Service", s)
		}
		d.emitted()
		for _, s := range all(round) {
			d.gone("Service", s)
		}
		d.emitted()
		got := 0
		for _, e := range d.store("Service").f.table.all {
			if e.emitted != nil {
				got += len(e.emitted.JSON) + objectCost
			}
			if e.now != nil && e.now != e.emitted {
				got += len(e.now.JSON) + objectCost
			}
		}
		if got > d.s.Limits.Bytes+objectCost { // the size of the last one is an estimate
			t.Fatalf("round %d: %d bytes are kept, at most %d may", round, got, d.s.Limits.Bytes)
		}
	}
}

// A list with too many objects, too many bytes, or too many large objects is refused as a whole: no object counts as
// deleted.
func TestListIsRefused(t *testing.T) {
	d := newDesk(t)
	f := d.store("Service").f
	d.s.Limits = Limits{Object: 1000, Objects: 3000, Bytes: 2000 * objectCost}
	if err := f.admit(1000, 1000, true); err != nil {
		t.Error(err)
	}
	if err := f.admit(1000, 1000, false); !isTooMuch(err) {
		t.Errorf("2000 KiB and more: %v", err)
	}
	other := d.store("Pod").f
	if err := other.admit(500, 0, true); !isTooMuch(err) {
		t.Errorf("beside what another list has: %v", err)
	}
	if err := f.admit(0, 0, true); err != nil {
		t.Error(err)
	}
	d.s.Limits.Bytes = 1 << 40
	if err := f.admit(3001, 0, true); !isTooMuch(err) {
		t.Errorf("3001 objects: %v", err)
	}
	d.put("Service", service("a", "1"))
	d.emitted()
	var large []any
	for i := range maxLeft + 1 {
		large = append(large, service(fmt.Sprint(i), strings.Repeat("x", 1001)))
	}
	if err := d.store("Service").Replace(large, ""); !isTooMuch(err) {
		t.Errorf("%d objects that are too large: %v", len(large), err)
	}
	d.emits()
}

// The weight of an object is about the length of its text.
func TestWeight(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion": "v1", "kind": "X", "spec": {"a": [1, true, null, {"b": "`+strings.Repeat("x", 5000)+`"}]}}`), &u.Object); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]int{"unstructured": weight(u), "typed": weight(service("a", strings.Repeat("x", 5000)))} {
		if got < 5000 || got > 5200 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// far plays the API server of another cluster that has only Services.
type far struct {
	mu       sync.Mutex
	services []string
}

func (f *far) has(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.services = nil
	for i := range n {
		f.services = append(f.services, fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": "s%d", "resourceVersion": "7"}}`, i))
	}
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	services := strings.HasSuffix(r.URL.Path, "/services")
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case q.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var items []string
	if services {
		items = f.services
	}
	path := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis"), "/api"), "/")
	at := strings.LastIndex(path, "/")
	kinds := map[string]string{"endpointslices": "EndpointSlice", "serviceaccounts": "ServiceAccount", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole",
		"clusterrolebindings": "ClusterRoleBinding", "namespaces": "Namespace", "nodes": "Node", "pods": "Pod", "roles": "Role", "services": "Service"}
	fmt.Fprintf(w, `{"kind": "%sList", "apiVersion": %q, "metadata": {"resourceVersion": "7"}, "items": [%s]}`, kinds[path[at+1:]], path[:at], strings.Join(items, ","))
}

// Another cluster exceeds the limits: its emitted objects stay, a problem names the kind, and no deletion is emitted.
// Once it is below the limits, the problem ends.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestOtherClusterSaysTooMuch(t *testing.T) {
	server := &far{}
	server.has(5)
	// All kinds are compared at each of these times: the lists stay below requestRate.
	s, err := New(Config{Kubeconfig: apiservertest.Kubeconfig(t, server.ServeHTTP), Cluster: "far", Limits: Limits{Objects: 10}, Compare: time.Second, pause: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e := hear(t, s)
	e.untilSynced()
	server.has(11)
	e.untilProblem(problem.Unreadable)
	if p := s.Problems(); len(p) != 1 || p[0].ID.Kind != "Service" || !strings.Contains(p[0].Message, "there are more than 10 objects; the state read before stays in effect") {
		t.Errorf("problems %v", p)
	}
	e.mu.Lock()
	for _, event := range e.events {
		if event.Op == object.Delete || event.Op == object.Broken {
			t.Errorf("emitted %v", event)
		}
	}
	if len(e.objects) != 5 {
		t.Errorf("%d objects", len(e.objects))
	}
	e.mu.Unlock()
	server.has(8)
	e.untilProblem("")
	e.until(func() string {
		if len(e.objects) != 8 {
			return fmt.Sprintf("%d objects, want 8", len(e.objects))
		}
		return ""
	})
}
