package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"navarch.io/navarch/cmd/internal/web"
)

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
