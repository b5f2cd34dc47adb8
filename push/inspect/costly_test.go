package inspect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// reader is a client that calls write for each part of the response that it receives.
type reader struct {
	*httptest.ResponseRecorder
	write func()
}

func (r reader) Write(b []byte) (int, error) {
	r.write()
	return r.ResponseRecorder.Write(b)
}

// A page that plans, or that decodes all resources of a proxy, is made under the limit of Config. The first part of the
// limit is returned before the response is written, so that a slow reader delays nobody, and the other part after it.
// The limit is informed which pages these are.
// Promise: security-limits.md#debug-pages-and-requests-of-tools
func TestCostlyPages(t *testing.T) {
	taken, unread, makes := 0, 0, 0
	refuse := false
	web := Stream{Proxy: "web.shop", Node: "n", Held: func() Resources { makes += taken; return Resources{} },
		Explain: func() (*manifest.Set, Specs, error) { makes += taken; return nil, nil, errors.New("lost it") }}
	h := Handler(Config{Streams: func(string) []Stream { return []Stream{web} }, Problems: func() []Problem { makes += taken; return nil },
		Turn: func(_ context.Context, costly bool) (func(), func(), error) {
			if !costly {
				return func() {}, func() {}, nil
			}
			if refuse {
				return nil, nil, errors.New("too many")
			}
			taken++
			unread++
			return func() { taken-- }, func() { taken, unread = 0, unread-1 }, nil
		}})
	written := 0
	visit := func(path string) (int, string) {
		w := reader{httptest.NewRecorder(), func() { written = 10*taken + unread }}
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	const explain, dump = "/debug/explain?proxyID=web.shop&resource=x", "/debug/config_dump?proxyID=web.shop"
	if _, _ = visit(explain); makes != 1 || taken != 0 {
		t.Errorf("explain was made %d times under the bound, which is held %d times after it", makes, taken)
	}
	if _, _ = visit(dump); makes != 2 || taken != 0 || unread != 0 {
		t.Errorf("config_dump was made %d times under the bound, which is held %d and %d times after it", makes-1, taken, unread)
	}
	if _, _ = visit("/debug/problems"); makes != 3 || taken != 0 || unread != 0 {
		t.Errorf("problems was made %d times under the bound, which is held %d and %d times after it", makes-2, taken, unread)
	}
	if written != 1 {
		t.Errorf("while the dump was written, %d were being made and %d unread; want 0 and 1", written/10, written%10)
	}
	refuse = true
	for _, path := range []string{explain, dump, "/debug/problems", "/debug/patches"} {
		if code, body := visit(path); code != 429 || !strings.Contains(body, "too many") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/debug/", "/debug/syncz", "/debug/connections"} {
		if code, body := visit(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// nothing is a client that reads and keeps nothing.
type nothing struct {
	http.ResponseWriter
	bytes int
}

func (n *nothing) Header() http.Header { return http.Header{} }
func (n *nothing) Write(b []byte) (int, error) {
	n.bytes += len(b)
	return len(b), nil
}

// A page is encoded in pieces: its allocations are a small multiple of its own bytes.
func TestPagesAreMadeInPieces(t *testing.T) {
	var held Resources
	var found []Problem
	for i := range 2000 {
		name := fmt.Sprintf("outbound|80||service-%d.shop.svc.cluster.local", i)
		held[xds.Cluster] = append(held[xds.Cluster], resource(t, xds.Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: name, ConnectTimeout: durationpb.New(time.Second)}))
		found = append(found, Problem{Object: "VirtualService shop/" + name, Field: "spec.hosts", Message: name})
	}
	web := Stream{Proxy: "web-7.shop", Node: "sidecar~1.1.1.1~web-7.shop~x", Held: func() Resources { return held }}
	h := Handler(Config{Streams: func(string) []Stream { return []Stream{web} }, Problems: func() []Problem { return found }})
	for path, most := range map[string]float64{"/debug/config_dump?proxyID=web-7.shop": 8, "/debug/problems": 6} { // 17 and 8 where they are printed as a whole
		page, r := &nothing{}, httptest.NewRequest("GET", path, nil)
		h.ServeHTTP(page, r)
		size := page.bytes
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(page, r)
		runtime.ReadMemStats(&after)
		ratio := float64(after.TotalAlloc-before.TotalAlloc) / float64(size)
		if size < 400_000 || ratio > most {
			t.Errorf("%s: %d bytes, %.1f times that is allocated", path, size, ratio)
		}
	}
}
