//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// editor writes VirtualServices of one namespace, past the faults.
type editor struct {
	t         *testing.T
	namespace string
	api       dynamic.ResourceInterface
	there     map[string]string // name -> timeout
	kept      map[string]bool   // never deleted so far
	large     string            // the one that has 1 MB
}

func edit(t *testing.T, c *controlplane.ControlPlane, namespace string) *editor {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return &editor{t: t, there: map[string]string{}, kept: map[string]bool{}, namespace: namespace, api: client.Resource(schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}).Namespace(namespace)}
}

func (e *editor) put(name, timeout string) {
	e.t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(virtualService(name, timeout)), &u.Object); err != nil {
		e.t.Fatal(err)
	}
	if name == e.large {
		http := u.Object["spec"].(map[string]any)["http"].([]any)[0].(map[string]any)
		http["headers"] = map[string]any{"request": map[string]any{"set": map[string]any{"x-large": strings.Repeat("x", 1<<20)}}}
	}
	if _, err := e.api.Apply(e.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		e.t.Fatal(err)
	}
	if _, was := e.there[name]; !was {
		e.kept[name] = true
	}
	e.there[name] = timeout
}

func (e *editor) remove(name string) {
	e.t.Helper()
	if err := e.api.Delete(e.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	delete(e.there, name)
	delete(e.kept, name)
}

// random changes objects: most are edited, some are made, a few deleted.
func (e *editor) random(n int) {
	e.t.Helper()
	for i := range n {
		names := slices.Sorted(maps.Keys(e.there))
		switch some := rand.IntN(10); {
		case len(names) < 10 || some < 3:
			e.put(fmt.Sprintf("new-%d-%d", len(names), rand.IntN(1e6)), "1s")
		case some < 9:
			e.put(names[rand.IntN(len(names))], fmt.Sprint(i+2, "s"))
		case strings.HasPrefix(names[len(names)-1], "new-"):
			e.remove(names[len(names)-1])
		}
	}
}

// arrive waits until the source has emitted exactly the existing objects, without deleting any that existed all the
// time.
func (e *editor) arrive(r *recorder, what string) {
	e.t.Helper()
	r.until(func() string {
		got := map[string]string{}
		for id, o := range r.objects {
			if id.Kind == "VirtualService" && o != nil && id.Namespace == e.namespace {
				var vs struct {
					Spec struct{ HTTP []struct{ Timeout string } }
				}
				if err := json.Unmarshal(o.JSON, &vs); err != nil {
					return err.Error()
				}
				got[id.Name] = vs.Spec.HTTP[0].Timeout
			}
		}
		if !maps.Equal(got, e.there) {
			return fmt.Sprintf("%s: %d objects are emitted, %d are there: %v, %v", what, len(got), len(e.there), got, e.there)
		}
		return ""
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if event.Op == object.Delete && event.ID.Kind == "VirtualService" && event.ID.Namespace == e.namespace && e.kept[event.ID.Name] {
			e.t.Errorf("%s: wrong removal of %v", what, event.ID)
		}
	}
}

// Through an API server that answers 429 and 410, ends watches at random and freezes them, with 5 % of the events lost,
// all changes arrive, and no existing object is removed. The same holds after the API server was away while 30 %
// changed, with a list that is older than received objects, and with an object of 1 MB.
func TestKubeFaultyAPIServer(t *testing.T) {
	c := controlplane.Shared(t)
	ns := c.Namespace(t)
	f, kubeconfig := faultyWay(t, c)
	l, cuttable := linkTo(t, c)
	e := edit(t, c, ns)
	lossy := listen(t, c, func(config *Config) {
		config.Kubeconfig, config.Compare, config.Silence = kubeconfig, 3*time.Second, time.Minute
		config.lose = func(event watch.Event) bool {
			return event.Type != watch.Bookmark && event.Type != watch.Error && rand.IntN(100) < 5
		}
	})
	exact := listen(t, c, func(config *Config) { config.Kubeconfig = kubeconfig; config.Silence = 2 * time.Second })
	away := listen(t, c, func(config *Config) { config.Kubeconfig = cuttable })
	all := []*recorder{lossy, exact, away}
	for _, r := range all {
		r.untilSynced()
	}
	for i := range 60 {
		e.put(fmt.Sprintf("keep-%02d", i), "1s")
	}
	e.large = "large"
	e.put(e.large, "1s")
	f.set(func(f *faults) { f.busy, f.gone, f.cut = 20, 20, 300*time.Millisecond })
	e.random(150)
	for _, r := range all {
		e.arrive(r, "under faults")
	}
	f.set(func(f *faults) {
		for _, want := range []string{"TooManyRequests", "Expired", "cut"} {
			if f.counts[want] < 3 {
				t.Errorf("%s: only %d times", want, f.counts[want])
			}
		}
		f.busy, f.gone, f.cut = 0, 0, 0
	})
	if o := exact.find("VirtualService", ns, e.large); len(o.JSON) < 1<<20 {
		t.Errorf("the large object has %d bytes", len(o.JSON))
	}
	if n := lossy.s.Stats().Repaired; n == 0 {
		t.Error("no lost event was found by a comparison")
	}
	// Frozen: an open watch delivers no further bytes, and new requests do. The missed events arrive by the next watch.
	for stuck := 0; stuck == 0; {
		f.set(func(f *faults) { f.frozen = true })
		e.random(10)
		f.set(func(f *faults) { f.frozen, stuck = false, f.counts["stuck"] })
		e.arrive(exact, "frozen")
		if t.Failed() {
			return
		}
	}
	// Away, and back with 30 % changed.
	e.arrive(away, "before it is away")
	before := away.count()
	l.setCut(true)
	away.untilProblem(problem.Unreadable)
	names := slices.Sorted(maps.Keys(e.there))
	for i, name := range names {
		switch {
		case i%10 == 0 && strings.HasPrefix(name, "keep"):
			e.remove(name)
		case i%10 == 1:
			e.put(name, "77s")
		case i%10 == 2:
			e.put(fmt.Sprint("more-", i), "1s")
		}
	}
	l.setCut(false)
	e.arrive(away, "away")
	removed := 0
	for _, event := range away.events[before:] {
		if event.Op == object.Delete {
			removed++
		}
	}
	if want := len(names) + countMore(e.there) - len(e.there); removed != want {
		t.Errorf("%d objects were emitted as gone, want %d", removed, want)
	}
}

func countMore(there map[string]string) (n int) {
	for name := range there {
		if strings.HasPrefix(name, "more-") {
			n++
		}
	}
	return n
}

// A list that is older than received objects is refused, for any event that delivered these: objects that it lacks
// stay.
func TestKubeStaleList(t *testing.T) {
	c := controlplane.Shared(t)
	ns := c.Namespace(t)
	f, kubeconfig := faultyWay(t, c)
	e := edit(t, c, ns)
	r := listen(t, c, func(config *Config) { config.Kubeconfig = kubeconfig; config.Silence = 2 * time.Second })
	r.untilSynced()
	e.put("a", "1s")
	e.arrive(r, "before")
	const path = "/apis/networking.istio.io/v1/virtualservices"
	old := c.Kubectl(t, "", "get", "--raw", path)
	e.put("b", "1s")
	e.arrive(r, "after")
	f.set(func(f *faults) { f.stale, f.path = old, path })
	for until := time.Now().Add(patience); r.s.Stats().Stale == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("no stale list was refused")
		}
	}
	f.set(func(f *faults) { f.stale = "" })
	e.put("c", "1s")
	e.arrive(r, "it goes on")
}

// A kind that is served in another version than before is read in that one, and nothing goes.
func TestKubeOtherVersion(t *testing.T) {
	c := controlplane.Shared(t)
	ns := c.Namespace(t)
	r := listen(t, c, nil)
	r.untilSynced()
	c.Kubectl(t, everyKind, "-n", ns, "apply", "-f", "-")
	r.until(func() string {
		if got := r.names(ns); !strings.Contains(got, "ServiceEntry e") {
			return got
		}
		return ""
	})
	id := object.ID{Origin: r.s.Origin(), Group: "networking.istio.io", Kind: "ServiceEntry", Namespace: ns, Name: "e"}
	serve := func(v1 bool, version string) {
		t.Helper()
		c.Kubectl(t, "", "patch", "crd", "serviceentries.networking.istio.io", "--type=json", "-p", fmt.Sprintf(`[{"op": "replace", "path": "/spec/versions/%d/served", "value": %v}]`, versionAt(t, c, "v1"), v1))
		r.until(func() string {
			if o := r.objects[id]; o == nil || o.Version != version {
				return fmt.Sprintf("read as %+v, want version %s", o, version)
			}
			return ""
		})
	}
	serve(false, "v1beta1")
	serve(true, "v1")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if event.Op == object.Delete && event.ID == id {
			t.Error("it was emitted as gone")
		}
	}
}

func versionAt(t *testing.T, c *controlplane.ControlPlane, version string) int {
	t.Helper()
	names := strings.Fields(c.Kubectl(t, "", "get", "crd", "serviceentries.networking.istio.io", "-o", "jsonpath={.spec.versions[*].name}"))
	return slices.Index(names, version)
}
