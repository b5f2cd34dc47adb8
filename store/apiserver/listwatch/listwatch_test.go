package listwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

const patience = time.Minute

// configMaps are those of an API server that answers as the handler does.
func configMaps(t *testing.T, handler http.HandlerFunc) *cache.ListWatch {
	t.Helper()
	config, err := apiserver.Config(apiservertest.Kubeconfig(t, handler))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config.GroupVersion, config.APIPath, config.QPS = &corev1.SchemeGroupVersion, "/api", -1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Wrap(Transport)
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return cache.NewFilteredListWatchFromClient(client, "configmaps", "", func(*metav1.ListOptions) {})
}

// recorder is what a Reflector puts objects into.
type recorder struct {
	lists chan []any
	seen  chan *corev1.ConfigMap
}

func newRecorder() *recorder {
	return &recorder{make(chan []any, 100), make(chan *corev1.ConfigMap, 1000)}
}

func (r *recorder) Add(o any) error    { return r.Update(o) }
func (r *recorder) Delete(o any) error { return nil }
func (r *recorder) Resync() error      { return nil }

func (r *recorder) Update(o any) error {
	r.seen <- o.(*corev1.ConfigMap)
	return nil
}

func (r *recorder) Replace(list []any, _ string) error {
	r.lists <- list
	return nil
}

// reflect runs a Reflector until the test ends, again where it ends by itself.
func reflect(t *testing.T, lw *cache.ListWatch) *recorder {
	into := newRecorder()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = Reflector("configmaps", lw, &corev1.ConfigMap{}, into, cache.ReflectorOptions{}).ListAndWatchWithContext(ctx)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return into
}

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal(what)
	}
	return v
}

func object(i, bytes int) corev1.ConfigMap {
	return corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("o", i), ResourceVersion: "7"},
		Data: map[string]string{"x": strings.Repeat("x", bytes)}}
}

// flood writes what never ends, until whoever asked has gone; it says how many bytes that took.
func flood(w http.ResponseWriter, start string) (written int) {
	chunk := []byte(strings.Repeat("x", 1<<20))
	n, err := w.Write([]byte(start))
	for written = n; err == nil && written < 200<<20; written += n {
		n, err = w.Write(chunk)
	}
	return written
}

// An answer and an error that never end, and an event that never ends, are read up to a bound, and whoever asked is told; a watch whose events are many
// goes on.
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

// Pages of large objects are asked for again with fewer objects, and the list is whole.
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
		_ = json.NewEncoder(w).Encode(list) // whoever asked may have gone
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

// A list that whoever asked for it will not have is no list; a watch that begins with such a one ends with an error.
func TestListIsRefused(t *testing.T) {
	full := errors.New("full")
	lw := Bound(configMaps(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		o := object(0, 1)
		if raw, _ := json.Marshal(o); r.URL.Query().Get("watch") != "" {
			fmt.Fprintf(w, `{"type": "ADDED", "object": %s}`+"\n", raw)
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, Items: []corev1.ConfigMap{o}})
	}), Options{Listed: func(runtime.Object, bool) error { return full }, Passes: func(_ watch.Event, lists bool) (bool, error) { return true, full }})
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, full) {
		t.Error(err)
	}
	lists := true
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: &lists})
	if err != nil {
		t.Fatal(err)
	}
	if e := receive(t, w.ResultChan(), "the watch says nothing"); e.Type != watch.Error || e.Object.(*metav1.Status).Message != "full" {
		t.Errorf("%v", e)
	}
	w.Stop()
}

// A watch that says nothing, not even a bookmark, ends after Silence, and its request with it; one that does goes on.
func TestSilentWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, silent, passed := watch.NewFake(), 0, 0
		var request context.Context
		lw := Bound(&cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			request = ctx
			return inner, nil
		}}, Options{Silent: func() { silent++ }, Passed: func(time.Time) { passed++ }})
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 10 {
			time.Sleep(time.Minute)
			inner.Action(watch.Bookmark, &corev1.Namespace{})
			if e, ok := <-w.ResultChan(); !ok || e.Type != watch.Bookmark {
				t.Fatalf("after %v: %v, %v", time.Since(began), e, ok)
			}
		}
		spoke := time.Now()
		if e, ok := <-w.ResultChan(); ok {
			t.Errorf("heard %v", e)
		}
		if took := time.Since(spoke); took != Silence || request.Err() == nil || silent != 1 || passed != 10 {
			t.Errorf("ended after %v, request %v, %d silent watches, %d events passed", took, request.Err(), silent, passed)
		}
	})
}

// A list or the beginning of a watch that does not come ends after Answer, and whoever asked is told.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		lw := Bound(&cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) { return nil, hangs(ctx) },
			WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) { return nil, hangs(ctx) },
		}, Options{Failed: func(err error) { failures = append(failures, err) }})
		began := time.Now()
		_, listing := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		_, watching := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		if took := time.Since(began); took != 2*Answer || !errors.Is(listing, ErrNoAnswer) || !errors.Is(watching, ErrNoAnswer) || len(failures) != 2 {
			t.Errorf("after %v: %v, %v; said %v", took, listing, watching, failures)
		}
	})
}
