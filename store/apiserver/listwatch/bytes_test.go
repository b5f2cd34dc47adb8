//go:build !race

package listwatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// flood writes without end until the client disconnects, and returns the number of bytes.
func flood(w http.ResponseWriter, start string) (written int) {
	chunk := []byte(strings.Repeat("x", 1<<20))
	n, err := w.Write([]byte(start))
	for written = n; err == nil && written < 200<<20; written += n {
		n, err = w.Write(chunk)
	}
	return written
}

// A response, an error and an event without end are read up to a bound, and the caller gets an error. A watch with many
// events continues.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestBytesAreBounded(t *testing.T) {
	sent := make(chan int, 100)
	failed := make(chan error, 100)
	const many = 16 // of 1 MiB each: more than one event may have
	t.Run("answer", func(t *testing.T) {
		lw := Bound(configMaps(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("fieldSelector") != "" {
				w.WriteHeader(http.StatusForbidden)
			}
			sent <- flood(w, `{"kind": "ConfigMapList", "apiVersion": "v1", "items": [], "x": "`)
		}), Options{Failed: func(err error) { failed <- err }})
		for _, selector := range []string{"", "metadata.name=a"} {
			_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{FieldSelector: selector})
			if !errors.Is(err, ErrTooLarge) || !errors.Is(receive(t, failed, "nobody is told"), ErrTooLarge) {
				t.Errorf("%q: %v", selector, err)
			}
			if n := receive(t, sent, "the answer does not end"); n > 2*maxAnswer {
				t.Errorf("%q: %d bytes were read", selector, n)
			}
		}
	})
	t.Run("watch", func(t *testing.T) {
		lw := Bound(configMaps(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			large := object(0, 1<<20)
			for range many {
				raw, _ := json.Marshal(large)
				if _, err := fmt.Fprintf(w, `{"type": "MODIFIED", "object": %s}`+"\n", raw); err != nil {
					t.Error(err)
				}
			}
			sent <- flood(w, `{"type": "MODIFIED", "object": {"kind": "ConfigMap", "apiVersion": "v1", "data": {"x": "`)
		}), Options{Failed: func(err error) { failed <- err }})
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for e := range w.ResultChan() {
			if e.Type == watch.Modified {
				seen++
			}
		}
		if err := receive(t, failed, "nobody is told"); seen != many || !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d events, and then %v", seen, err)
		}
		if n := receive(t, sent, "the event does not end"); n > 2*maxEvent {
			t.Errorf("%d bytes were read", n)
		}
	})
}

// Pages of large objects are requested again with fewer objects, and the list is complete.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestLargePages(t *testing.T) {
	const objects, size = 20, 1 << 20
	var largest, pages int
	lw := Bound(configMaps(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		if q.Get("resourceVersion") != "" {
			t.Errorf("a list of resource version %s is asked for", q.Get("resourceVersion"))
		}
		limit, _ := strconv.Atoi(q.Get("limit"))
		from, _ := strconv.Atoi(q.Get("continue"))
		until := min(from+limit, objects)
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := from; i < until; i++ {
			list.Items = append(list.Items, object(i, size))
		}
		if until < objects {
			list.Continue = fmt.Sprint(until)
		}
		pages, largest = pages+1, max(largest, len(list.Items))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the client may have disconnected
	}), Options{})
	list := receive(t, reflect(t, lw).lists, "there is no list")
	names := map[string]bool{}
	for _, o := range list {
		names[o.(*corev1.ConfigMap).Name] = true
	}
	if len(list) != objects || len(names) != objects || largest != objects || pages > objects {
		t.Errorf("%d objects, of %d names, the largest page had %d, %d pages were asked for", len(list), len(names), largest, pages)
	}
}
