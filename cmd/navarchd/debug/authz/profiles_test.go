package authz

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sync/semaphore"
)

// Profiles beyond the limit are refused; pages that cost nothing are still served.
func TestProfilesAreBounded(t *testing.T) {
	places := semaphore.NewWeighted(1)
	h := profiles(places)
	ask := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	if !places.TryAcquire(1) {
		t.Fatal("there is no place")
	}
	for path, want := range map[string]int{
		"/debug/pprof/": 200, "/debug/pprof/cmdline": 200, "/debug/pprof/symbol": 200,
		"/debug/pprof/profile": 429, "/debug/pprof/trace": 429, "/debug/pprof/goroutine": 429, "/debug/pprof/heap?gc=1": 429,
	} {
		if got := ask(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	places.Release(1)
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
