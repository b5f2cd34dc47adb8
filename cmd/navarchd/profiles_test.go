package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"navarch.io/navarch/cmd/internal/web"
)

// Profiles beyond the bound are refused; what costs nothing is shown all the same.
func TestProfilesAreBounded(t *testing.T) {
	slots := web.NewSlots(1, 1)
	h := profiles(slots)
	ask := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	turn, err := slots.Try("somebody")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/debug/pprof/": 200, "/debug/pprof/cmdline": 200, "/debug/pprof/symbol": 200,
		"/debug/pprof/profile": 429, "/debug/pprof/trace": 429, "/debug/pprof/goroutine": 429, "/debug/pprof/heap?gc=1": 429,
	} {
		if got := ask(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	turn.Done()
	for range 2 { // each gives its slot back
		if got := ask("/debug/pprof/goroutine"); got != 200 {
			t.Errorf("with a free slot: %d", got)
		}
	}
	for _, seconds := range []string{"61", "1e9", "NaN", "inf", "soon"} {
		for _, page := range []string{"profile", "trace", "heap"} {
			if got := ask("/debug/pprof/" + page + "?seconds=" + seconds); got != 400 {
				t.Errorf("%s for %s seconds: %d", page, seconds, got)
			}
		}
	}
}

// A caller has its turn for what costs, and no more than its part of the line; the callers of this machine are one.
func TestCostlyPagesAreCountedByCaller(t *testing.T) {
	p := &process{config: &config{}, costly: web.NewSlots(1, 1)}
	of := func(ctx context.Context, name string) (func(), error) {
		_, read, err := p.shown(caller{name: name}).Costly(ctx)
		return read, err
	}
	done, err := of(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of(t.Context(), "a"); err == nil {
		t.Error("a second of one caller")
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := of(gone, "b"); err == nil {
		t.Error("two at once")
	}
	done()
	if done, err = of(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	done()
}

// The names of this process, as its flags and its environment say them, are those by which it may be asked.
func TestDebugNames(t *testing.T) {
	c := &config{httpAddr: "10.9.8.7:8080", advertise: "replica.example:15012", debugHosts: []string{"debug.example"}}
	c.env.podIP, c.env.podNamespace, c.env.customHost = "10.1.2.3", "istio-system", "custom.example"
	h := web.Guard(c.debugNames(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:8080": 200, "127.0.0.1": 200, "10.9.8.7:8080": 200, "10.1.2.3:8080": 200, "replica.example:8080": 200, "debug.example": 200,
		"istiod.istio-system.svc:8080": 200, "custom.example": 200, "evil.example": 403, "10.9.8.6:8080": 403,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/debug/", nil), httptest.NewRecorder()
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}
