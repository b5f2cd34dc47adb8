package vhost

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// A real Envoy does with real requests what the rules say.
func TestEnvoyRoutes(t *testing.T) {
	mirrored := make(chan seen, 1)
	v1 := backend(t, "v1", func(seen) {})
	v2 := backend(t, "v2", func(seen) {})
	m := backend(t, "m", func(s seen) { mirrored <- s })
	s := specOf(service(t, everyFeature))
	s.Domains = strs.List("*")
	envoy := "http://" + startEnvoy(t, bootstrap(t, routeConfig(t, s), map[string][]string{
		xds.OutboundCluster(80, "v1", "a"): {v1}, xds.OutboundCluster(80, "v2", "a"): {v2},
		xds.OutboundCluster(80, "", "m"): {m}, xds.BlackHole: nil,
	}))
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	do := func(method, path string, header ...string) (*http.Response, seen, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, envoy+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		var s seen
		_ = json.Unmarshal(body, &s)
		return resp, s, string(body)
	}
	status := func(want int, method, path string, header ...string) (*http.Response, seen, string) {
		t.Helper()
		resp, s, body := do(method, path, header...)
		if resp.StatusCode != want {
			t.Errorf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, body)
		}
		return resp, s, body
	}

	if _, _, body := status(418, "GET", "/direct"); body != "short and stout" {
		t.Errorf("direct response %q", body)
	}
	if _, _, body := status(200, "GET", "/large"); body != large {
		t.Errorf("large direct response of %d bytes", len(body))
	}
	if resp, _, _ := status(307, "GET", "/old/x?y"); resp.Header.Get("Location") != "https://other:8443/new/x?y" {
		t.Errorf("redirect to %q", resp.Header.Get("Location"))
	}
	resp, got, _ := status(200, "GET", "/team/x?q=1", "x-team", "blue")
	if got.Backend != "v2" || got.Path != "/rewritten/x?q=1" || got.Host != "new.host" || got.Header.Get("X-Set") != "100%" ||
		got.Header.Get("X-Path") != "/team/x?q=1" || got.Header.Get("X-Add") != "a" || got.Header.Get("X-Team") != "" ||
		resp.Header.Get("X-Answer") != "yes" || resp.Header.Get("X-Dest") != "v2" {
		t.Errorf("header rule: backend saw %+v, client got %v", got, resp.Header)
	}
	for _, miss := range [][]string{{}, {"x-team", "red"}, {"x-team", "blue", "x-not", "1"}} {
		if _, got, _ := status(200, "GET", "/team/x?q=1", miss...); got.Backend != "v1" || got.Path != "/team/x?q=1" {
			t.Errorf("headers %v: backend saw %+v", miss, got)
		}
	}
	status(503, "GET", "/nowhere")
	status(504, "GET", "/slow")
	status(451, "GET", "/fault")
	status(299, "GET", "/case")
	if _, got, _ := status(200, "GET", "/flaky"); got.Header.Get("X-Envoy-Attempt-Count") != "3" {
		t.Errorf("retries: backend saw %+v", got)
	}
	if _, got, _ := status(200, "GET", "/re/42"); got.Path != "/got/42" {
		t.Errorf("regex rewrite: backend saw %+v", got)
	}
	if resp, _, _ := status(200, "GET", "/hang", "content-type", "application/grpc", "grpc-timeout", "50m"); resp.Header.Get("Grpc-Message") != "upstream request timeout" {
		t.Errorf("gRPC deadline: %v", resp.Header)
	}
	if resp, _, _ := status(200, "OPTIONS", "/cors", "origin", "http://good", "access-control-request-method", "GET"); resp.Header.Get("Access-Control-Max-Age") != "60" {
		t.Errorf("CORS preflight: %v", resp.Header)
	}
	if resp, _, _ := status(200, "OPTIONS", "/cors", "origin", "http://bad", "access-control-request-method", "GET"); resp.Header.Get("Access-Control-Max-Age") != "" {
		t.Errorf("CORS preflight of a foreign origin: %v", resp.Header)
	}
	status(200, "GET", "/mirror")
	select {
	case s := <-mirrored:
		if s.Path != "/mirror" {
			t.Errorf("mirror saw %+v", s)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was mirrored")
	}

	const n, share = 1000, 0.2
	hits := 0
	for range n {
		_, got, _ := status(200, "GET", "/weights")
		if (got.Backend == "v2") != (got.Header.Get("X-W") == "v2") {
			t.Fatalf("headers of the wrong destination: %+v", got)
		}
		if got.Backend == "v2" {
			hits++
		}
	}
	if sigma := math.Sqrt(n * share * (1 - share)); math.Abs(float64(hits)-n*share) > 6*sigma {
		t.Errorf("v2 got %d of %d, want %.0f ± %.0f", hits, n, n*share, 6*sigma)
	}
}

// Consistent hashing: one key, one backend; many keys, all backends.
func TestEnvoyHashes(t *testing.T) {
	s := specOf(nil)
	d := s.Destinations.All()[0]
	d.Rule = rule(t, `{host: a, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}}`)
	s.Destinations, s.Domains = dests.List(d), strs.List("*")
	envoy := "http://" + startEnvoy(t, bootstrap(t, routeConfig(t, s), map[string][]string{
		d.Cluster: {backend(t, "one", func(seen) {}), backend(t, "two", func(seen) {})},
	}))
	ask := func(user string) string {
		req, err := http.NewRequestWithContext(t.Context(), "GET", envoy, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-user", user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got seen
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		return got.Backend
	}
	used := map[string]bool{}
	for i := range 40 {
		user := string(rune('A' + i))
		first := ask(user)
		used[first] = true
		for range 4 {
			if again := ask(user); again != first {
				t.Fatalf("user %s went to %s and then to %s", user, first, again)
			}
		}
	}
	if len(used) != 2 {
		t.Errorf("40 users all went to %v", used)
	}
}
