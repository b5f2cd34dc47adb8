package kube

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/problem"
)

// farEntries plays the API server of another cluster: of the group networking.istio.io it serves VirtualServices and
// WorkloadEntries in some versions, and has one WorkloadEntry for each revision's label.
type farEntries struct {
	far
	mu       sync.Mutex
	versions []string // in which the group is served; none: it is not
	called   string   // name of the group in the response; empty: its own
	hidden   bool     // discovery of the group is forbidden
	refused  bool     // WorkloadEntries may not be listed
	asked    []string // paths of the group
}

func (f *farEntries) set(change func(*farEntries)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *farEntries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const group = "/apis/networking.istio.io"
	rest, of := strings.CutPrefix(r.URL.Path, group)
	if r.URL.Path == "/readyz" {
		return
	}
	if !of {
		f.far.ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	f.asked = append(f.asked, rest)
	versions, hidden, refused, called := f.versions, f.hidden, f.refused, cmp.Or(f.called, "networking.istio.io")
	f.mu.Unlock()
	version, resource, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	fails := func(code int, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`, reason, code)
	}
	var list []string
	switch q := r.URL.Query(); {
	case hidden:
		fails(http.StatusForbidden, "Forbidden")
	case len(versions) == 0, rest != "" && !slices.Contains(versions, version):
		fails(http.StatusNotFound, "NotFound")
	case rest == "":
		for _, v := range versions {
			list = append(list, fmt.Sprintf(`{"groupVersion": "networking.istio.io/%s", "version": %q}`, v, v))
		}
		fmt.Fprintf(w, `{"kind": "APIGroup", "name": %q, "versions": [%s], "preferredVersion": %s}`, called, strings.Join(list, ","), list[0])
	case resource == "":
		for _, k := range []string{"VirtualService", "WorkloadEntry"} {
			plural := map[string]string{"VirtualService": "virtualservices", "WorkloadEntry": "workloadentries"}[k]
			list = append(list, fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": true, "verbs": ["create", "list", "watch"]}`, plural, k))
		}
		fmt.Fprintf(w, `{"kind": "APIResourceList", "resources": [%s]}`, strings.Join(list, ","))
	case refused:
		fails(http.StatusForbidden, "Forbidden")
	case q.Get("watch") != "" || q.Get("sendInitialEvents") != "":
		f.far.ServeHTTP(w, r)
	default:
		w.Header().Set("Content-Type", "application/json")
		for name, labels := range map[string]string{"any": "", "mine": `"istio.io/rev": "canary"`, "other": `"istio.io/rev": "blue"`} {
			list = append(list, fmt.Sprintf(`{"apiVersion": "networking.istio.io/%s", "kind": "WorkloadEntry", "metadata": {"namespace": "shop", "name": %q, "resourceVersion": "7",
				"labels": {%s}}, "spec": {"address": "10.2.0.1"}}`, version, name, labels))
		}
		fmt.Fprintf(w, `{"kind": "WorkloadEntryList", "apiVersion": "networking.istio.io/%s", "metadata": {"resourceVersion": "7"}, "items": [%s]}`, version, strings.Join(list, ","))
	}
}

// Of another cluster, only WorkloadEntries are read of Istio's kinds, in the best version served. A cluster that does
// not serve them, or forbids listing or discovering them, is read completely without them. If it serves them later,
// they are read then.
func TestWorkloadEntriesOfAnotherCluster(t *testing.T) {
	for name, c := range map[string]struct {
		serve   func(*farEntries)
		off     bool
		version string // in which they are emitted; empty: they are not
		warned  bool
	}{
		"served":                 {serve: func(f *farEntries) { f.versions = []string{"v1", "v1beta1", "v1alpha3"} }, version: "v1"},
		"in older versions":      {serve: func(f *farEntries) { f.versions = []string{"v1alpha3", "v1beta1"} }, version: "v1beta1"},
		"by another name":        {serve: func(f *farEntries) { f.versions, f.called = []string{"v9", "v1"}, "other.istio.io" }, version: "v1"},
		"not served":             {serve: func(*farEntries) {}},
		"may not be asked for":   {serve: func(f *farEntries) { f.hidden = true }, warned: true},
		"may not be listed":      {serve: func(f *farEntries) { f.versions, f.refused = []string{"v1"}, true }, warned: true},
		"served, and not wanted": {serve: func(f *farEntries) { f.versions = []string{"v1"} }, off: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &farEntries{}
			server.has(2)
			c.serve(server)
			s, err := New(Config{Kubeconfig: apiservertest.Kubeconfig(t, server.ServeHTTP), Cluster: "far", WorkloadEntries: !c.off, Revision: "canary", Discover: 100 * time.Millisecond,
				pause: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			e := hear(t, s)
			e.untilSynced()
			e.entries(c.version)
			all := s.Problems()
			if warned := len(all) == 1 && all[0].Code == problem.NotAllowed && all[0].Severity == problem.Warning && strings.Contains(all[0].Message, "this cluster: WorkloadEntry;"); warned != c.warned ||
				!warned && len(all) > 0 {
				t.Errorf("problems %v", all)
			}
			server.set(func(f *farEntries) {
				if slices.Contains(f.asked, "/v9") {
					t.Error("a version that is not known was asked for")
				}
				if c.off && len(f.asked) > 0 {
					t.Errorf("asked %v", f.asked)
				}
				f.versions, f.hidden, f.refused = []string{"v1"}, false, false
			})
			if !c.off {
				e.entries("v1")
				e.untilProblem("")
			}
		})
	}
}

// The resources of all versions of all groups are requested concurrently: no response comes before all requests were
// sent.
func TestVersionsAreAskedForAtOnce(t *testing.T) {
	var asked atomic.Int32
	all := make(chan struct{})
	s, err := New(Config{Kubeconfig: apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch group, version, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/"); {
		case r.URL.Path == "/readyz":
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"groups": [{"name": "security.istio.io", "versions": [{"version": "v1"}, {"version": "v1beta1"}], "preferredVersion": {"version": "v1"}},
				{"name": "telemetry.istio.io", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}]}`)
		default:
			if asked.Add(1) == 3 {
				close(all)
			}
			select {
			case <-all:
			case <-r.Context().Done():
			}
			fmt.Fprintf(w, `{"resources": [{"name": "%[1]ss", "kind": "K", "namespaced": true, "verbs": ["create", "list", "watch"]}, {"name": "%[1]ss-%[2]s", "kind": "Only%[2]s", "verbs": ["create", "list", "watch"]}]}`, group, version)
		}
	}), Answer: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.served(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, version := range map[kindID]string{{group: "security.istio.io", kind: "K"}: "v1", {group: "security.istio.io", kind: "Onlyv1beta1"}: "v1beta1", {group: "telemetry.istio.io", kind: "K"}: "v1"} {
		if found[id].version != version {
			t.Errorf("%v is read in %q, want %q", id, found[id].version, version)
		}
	}
	if len(found) != 5 {
		t.Errorf("found %v", found)
	}
}

// entries waits until the objects are two Services and, in this version, the WorkloadEntries that are for this
// revision.
func (e *recorder) entries(version string) {
	e.t.Helper()
	want := []string{"Service shop/s0", "Service shop/s1"}
	if version != "" {
		want = append(want, "WorkloadEntry shop/any "+version, "WorkloadEntry shop/mine "+version)
	}
	e.until(func() string {
		var got []string
		for id, o := range e.objects {
			text := id.Kind + " " + id.Namespace + "/" + id.Name
			if id.Group != "" {
				text += " " + o.Version
			}
			if id.Origin != e.s.Origin() {
				e.t.Errorf("%v is of another origin", id)
			}
			got = append(got, text)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Sprintf("there are %v, want %v", got, want)
		}
		return ""
	})
}
