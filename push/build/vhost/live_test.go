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

// live is a running Envoy with the routes of everyFeature.
type live struct {
	*testing.T
	url      string
	client   http.Client
	mirrored chan seen // what the destination of mirrored requests got
}

func startLive(t *testing.T) *live {
	e := &live{T: t, mirrored: make(chan seen, 1),
		client: http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	v1 := backend(t, "v1", func(seen) {})
	v2 := backend(t, "v2", func(seen) {})
	m := backend(t, "m", func(s seen) { e.mirrored <- s })
	s := specOf(service(t, everyFeature))
	s.Domains = strs.List("*")
	e.url = "http://" + startEnvoy(t, bootstrap(t, routeConfig(t, s), map[string][]string{
		xds.OutboundCluster(80, "v1", "a"): {v1}, xds.OutboundCluster(80, "v2", "a"): {v2},
		xds.OutboundCluster(80, "", "m"): {m}, xds.BlackHole: nil,
	}))
	return e
}

// status sends a request, and returns the response and the request as the backend received it.
func (e *live) status(want int, method, path string, header ...string) (*http.Response, seen, string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, nil)
	if err != nil {
		e.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := e.client.Do(req)
	if err != nil {
		e.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatalf("%s %s: %v", method, path, err)
	}
	var s seen
	_ = json.Unmarshal(body, &s)
	if resp.StatusCode != want {
		e.Errorf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, body)
	}
	return resp, s, string(body)
}

// A real Envoy applies the rules to real requests.
func TestEnvoyRoutes(t *testing.T) {
	e := startLive(t)
	e.direct()
	e.headers()
	e.actions()
	e.mirror()
	e.weights()
}

// direct: responses without a backend.
func (e *live) direct() {
	if _, _, body := e.status(418, "GET", "/direct"); body != "short and stout" {
		e.Errorf("direct response %q", body)
	}
	if _, _, body := e.status(200, "GET", "/large"); body != large {
		e.Errorf("large direct response of %d bytes", len(body))
	}
	if resp, _, _ := e.status(307, "GET", "/old/x?y"); resp.Header.Get("Location") != "https://other:8443/new/x?y" {
		e.Errorf("redirect to %q", resp.Header.Get("Location"))
	}
}

// headers: a rule that matches by headers, rewrites, and changes headers both ways, but not those that frame messages.
func (e *live) headers() {
	resp, got, _ := e.status(200, "GET", "/team/x?q=1", "x-team", "blue")
	if got.Backend != "v2" || got.Path != "/rewritten/x?q=1" || got.Host != "new.host" || got.Header.Get("X-Set") != "100%" ||
		got.Header.Get("X-Path") != "/team/x?q=1" || got.Header.Get("X-Add") != "a" || got.Header.Get("X-Team") != "" ||
		resp.Header.Get("X-Answer") != "yes" || resp.Header.Get("X-Dest") != "v2" {
		e.Errorf("header rule: backend saw %+v, client got %v", got, resp.Header)
	}
	for _, miss := range [][]string{{}, {"x-team", "red"}, {"x-team", "blue", "x-not", "1"}} {
		if _, got, _ := e.status(200, "GET", "/team/x?q=1", miss...); got.Backend != "v1" || got.Path != "/team/x?q=1" {
			e.Errorf("headers %v: backend saw %+v", miss, got)
		}
	}
}

// actions: timeouts, faults, retries, rewrites, CORS.
func (e *live) actions() {
	e.status(503, "GET", "/nowhere")
	e.status(504, "GET", "/slow")
	e.status(451, "GET", "/fault")
	e.status(299, "GET", "/case")
	e.status(297, "GET", "/claims") // no filter has found any
	if _, got, _ := e.status(200, "GET", "/flaky"); got.Header.Get("X-Envoy-Attempt-Count") != "3" {
		e.Errorf("retries: backend saw %+v", got)
	}
	if _, got, _ := e.status(200, "GET", "/re/42"); got.Path != "/got/42" {
		e.Errorf("regex rewrite: backend saw %+v", got)
	}
	if resp, _, _ := e.status(200, "GET", "/hang", "content-type", "application/grpc", "grpc-timeout", "50m"); resp.Header.Get("Grpc-Message") != "upstream request timeout" {
		e.Errorf("gRPC deadline: %v", resp.Header)
	}
	if resp, _, _ := e.status(200, "OPTIONS", "/cors", "origin", "http://good", "access-control-request-method", "GET"); resp.Header.Get("Access-Control-Max-Age") != "60" {
		e.Errorf("CORS preflight: %v", resp.Header)
	}
	if resp, _, _ := e.status(200, "OPTIONS", "/cors", "origin", "http://bad", "access-control-request-method", "GET"); resp.Header.Get("Access-Control-Max-Age") != "" {
		e.Errorf("CORS preflight of a foreign origin: %v", resp.Header)
	}
}

// mirror: a copy of a request.
func (e *live) mirror() {
	e.status(200, "GET", "/mirror")
	select {
	case s := <-e.mirrored:
		if s.Path != "/mirror" {
			e.Errorf("mirror saw %+v", s)
		}
	case <-time.After(time.Minute):
		e.Error("nothing was mirrored")
	}
}

// weights: a fifth of the requests goes elsewhere.
func (e *live) weights() {
	const n, share = 1000, 0.2
	hits := 0
	for range n {
		_, got, _ := e.status(200, "GET", "/weights")
		if (got.Backend == "v2") != (got.Header.Get("X-W") == "v2") {
			e.Fatalf("headers of the wrong destination: %+v", got)
		}
		if got.Backend == "v2" {
			hits++
		}
	}
	if sigma := math.Sqrt(n * share * (1 - share)); math.Abs(float64(hits)-n*share) > 6*sigma {
		e.Errorf("v2 got %d of %d, want %.0f ± %.0f", hits, n, n*share, 6*sigma)
	}
}

// Consistent hashing: one key, one backend; many keys, all backends.
func TestEnvoyHashes(t *testing.T) {
	s := specOf(nil)
	d := s.Destinations.All()[0]
	d = hashed(d, rule(t, `{host: a, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}}`))
	s.Destinations, s.Domains = dests.List(d), strs.List("*")
	envoy := "http://" + startEnvoy(t, bootstrap(t, routeConfig(t, s), map[string][]string{
		d.Cluster.String(): {backend(t, "one", func(seen) {}), backend(t, "two", func(seen) {})},
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
