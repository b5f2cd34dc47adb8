package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/machines"
)

// definitions returns a client for an API server that serves WorkloadEntries and WorkloadGroups in some versions, and
// has the group vms; created objects are sent to made.
func definitions(t *testing.T, made chan<- *WorkloadEntry, versions ...string) *WorkloadEntries {
	t.Helper()
	kubeconfig := apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path, is := strings.CutPrefix(r.URL.Path, "/apis/networking.istio.io/")
		version, path, _ := strings.Cut(path, "/")
		at := "networking.istio.io/" + version
		switch {
		case !is || !strings.Contains(strings.Join(versions, " ")+" ", version+" "):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		case r.Method == http.MethodPost:
			e := &WorkloadEntry{}
			raw, err := io.ReadAll(r.Body)
			if err := errors.Join(err, json.Unmarshal(raw, &e.Object)); err != nil {
				t.Error(err)
			}
			made <- e
			_, _ = w.Write(raw) // the client may have disconnected
		case path == "namespaces/shop/workloadgroups/vms":
			fmt.Fprintf(w, `{"kind": "WorkloadGroup", "apiVersion": %q, "metadata": {"name": "vms", "namespace": "shop", "uid": "u"}}`, at)
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"kind": "List", "apiVersion": %q, "metadata": {"resourceVersion": "1"}, "items": []}`, at)
		}
	})
	entries, err := NewWorkloadEntries(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// heardOf is a Seen that records the complete list.
type heardOf struct{ all chan int }

func (h heardOf) Replace(all map[Key]Found[WorkloadEntry]) { h.all <- len(all) }
func (h heardOf) Observe(Key, Found[WorkloadEntry])        {}

// Without the definitions of WorkloadEntries, now or for good, there are no objects and no problem.
func TestNoWorkloadEntriesAreServed(t *testing.T) {
	entries, seen := definitions(t, nil), heardOf{make(chan int, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = entries.Follow(ctx, seen, func(err error) { // its error is the context's
			if err != nil {
				t.Errorf("it is a problem: %v", err)
			}
		})
	}()
	if n := <-seen.all; n != 0 {
		t.Errorf("there are %d", n)
	}
	cancel()
	<-ended
}

// WorkloadEntries are made in the version in which they are served, by definitions of an older Istio as by those of a
// newer one, and so is their owner named.
func TestServedVersionIsWritten(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha3"} {
		made := make(chan *WorkloadEntry, 1)
		entries := definitions(t, made, version)
		if is, err := entries.entries.find(t.Context()); err != nil || !is {
			t.Fatalf("%s: %v %v", version, is, err)
		}
		k := Key{"shop", "vms-10.0.0.1"}
		e := newEntry(k, machines.Wanted{Machine: &machines.Machine{Group: "vms"}}, 1)
		if _, err := entries.Write(t.Context(), k, e); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		want := "networking.istio.io/" + version
		if e := <-made; e.GetAPIVersion() != want || len(e.GetOwnerReferences()) != 1 || e.GetOwnerReferences()[0].APIVersion != want {
			t.Errorf("%s: %v", version, e.Object)
		}
	}
}
