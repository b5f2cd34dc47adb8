package listwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// configMaps lists and watches ConfigMaps of an API server with this handler.
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

// recorder is the store of a Reflector.
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

// A list that its caller refuses fails; a watch that begins with such a list ends with an error.
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

// A watch without any event or bookmark ends after Silence, with its request; one with events continues.
// Promise: security-limits.md#api-servers-of-other-clusters
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

// A list, or the start of a watch, without a response fails after Answer.
// Promise: security-limits.md#api-servers-of-other-clusters
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
