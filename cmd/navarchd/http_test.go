package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug"
)

// The monitoring port serves the pages for operators without a credential, with and without /debug.
func TestPagesForOperatorsAreServed(t *testing.T) {
	for path, want := range map[string]int{"/docs/": http.StatusOK, "/docs/alerts.md": http.StatusOK, "/docs/none.md": http.StatusNotFound, "/debug/problems": http.StatusNotFound} {
		w := httptest.NewRecorder()
		monitoring(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}

// Both HTTP addresses read 4 MiB of a preview's request, and 64 KiB of all others.
// Promise: plan.md#what-it-costs
func TestBodiesOfPreviews(t *testing.T) {
	const usualBody = 64 << 10
	asked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	for name, h := range map[string]http.Handler{"http": public(nil, nil, asked), "monitoring": monitoring(asked)} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- web.Serve(ctx, l, h, pageLimits, nil) }()
		for _, c := range []struct {
			path string
			size int
			want int
		}{
			{"/api/v1/plan", debug.MaxPlanBody, http.StatusOK},
			{"/api/v1/plan?delete=true", debug.MaxPlanBody, http.StatusOK},
			{"/api/v1/plan", debug.MaxPlanBody + 1, http.StatusRequestEntityTooLarge},
			{"/api/v1/proxies", usualBody, http.StatusOK},
			{"/api/v1/proxies", usualBody + 1, http.StatusRequestEntityTooLarge},
			{"/debug/removals", usualBody + 1, http.StatusRequestEntityTooLarge},
		} {
			res, err := http.Post(fmt.Sprintf("http://%s%s", l.Addr(), c.path), "", strings.NewReader(strings.Repeat("#", c.size)))
			if err != nil {
				t.Errorf("%s: %s, %d bytes: %v", name, c.path, c.size, err)
				continue
			}
			_ = res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("%s: %s, %d bytes: status %d, want %d", name, c.path, c.size, res.StatusCode, c.want)
			}
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
