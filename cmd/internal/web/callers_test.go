package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func asked(from, host string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/debug/syncz", nil)
	r.RemoteAddr, r.Host = from, host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// A request that a proxy forwards was not made on this machine, whatever the proxy adds to it.
// Promise: security-connections.md#http-ports-of-navarchd
func TestSameMachine(t *testing.T) {
	for name, c := range map[string]struct {
		from    string
		headers []string
		want    bool
	}{
		"loopback":                 {"127.0.0.1:9", nil, true},
		"another loopback address": {"127.0.0.7:9", nil, true},
		"loopback, version 6":      {"[::1]:9", nil, true},
		"loopback, mapped":         {"[::ffff:127.0.0.1]:9", nil, true},
		"headers of a client":      {"127.0.0.1:9", []string{"Accept", "*/*", "User-Agent", "curl", "X-Forward", "no"}, true},
		"sidecar":                  {"127.0.0.6:9", nil, false},
		"sidecar, mapped":          {"[::ffff:127.0.0.6]:9", nil, false},
		"sidecar, version 6":       {"[::6]:9", nil, false}, // Istio's InboundPassthroughBindIpv6
		"elsewhere":                {"10.1.2.3:9", nil, false},
		"no address":               {"@", nil, false},
		"passed on":                {"127.0.0.1:9", []string{"X-Forwarded-For", "127.0.0.1"}, false},
		"empty header":             {"127.0.0.1:9", []string{"X-Forwarded-For", ""}, false},
		"RFC 7239":                 {"127.0.0.1:9", []string{"Forwarded", "for=127.0.0.1"}, false},
		"RFC 9110":                 {"127.0.0.1:9", []string{"Via", "1.1 x"}, false},
		"another spelling":         {"127.0.0.1:9", []string{"x-forwarded-PROTO", "http"}, false},
		"nginx":                    {"127.0.0.1:9", []string{"X-Real-IP", "127.0.0.1"}, false},
		"Envoy":                    {"127.0.0.1:9", []string{"X-Envoy-Expected-Rq-Timeout-Ms", "15000"}, false},
		"Envoy's id":               {"127.0.0.1:9", []string{"X-Request-Id", "1"}, false},
	} {
		if got := SameMachine(asked(c.from, "localhost", c.headers...)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Requests that a page of another site causes in a browser are refused, whether they name the other site (DNS
// rebinding) or this server.
// Promise: security-connections.md#http-ports-of-navarchd
func TestGuard(t *testing.T) {
	h := Guard(NewHosts("navarchd.example:8080", "10.1.2.3", "2001:DB8::5", "", ":8080", "0.0.0.0:8080", "[::]:8080"),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
	for name, c := range map[string]struct {
		host    string
		headers []string
		want    int
	}{
		"localhost":               {"localhost", nil, 200},
		"with a port":             {"LocalHost:8080", nil, 200},
		"loopback":                {"127.0.0.1:8080", nil, 200},
		"forwarded port":          {"127.0.0.1:43210", nil, 200},
		"loopback, version 6":     {"[::1]:8080", nil, 200},
		"without a port":          {"[::1]", nil, 200},
		"configured":              {"Navarchd.Example", nil, 200},
		"configured address":      {"10.1.2.3:8080", nil, 200},
		"the same, version 6":     {"[2001:db8:0::5]:8080", nil, 200},
		"user's own doing":        {"localhost:8080", []string{"Sec-Fetch-Site", "none"}, 200},
		"same origin":             {"localhost:8080", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"}, 200},
		"rebound name":            {"evil.example", nil, 403},
		"with the port":           {"evil.example:8080", nil, 403},
		"as if it were ours":      {"localhost.evil.example", nil, 403},
		"address in a name":       {"127.0.0.1.evil.example:8080", nil, 403},
		"user in a name":          {"localhost@evil.example", nil, 403},
		"another address":         {"10.1.2.4:8080", nil, 403},
		"all addresses":           {"0.0.0.0:8080", nil, 403},
		"nobody":                  {"", nil, 403},
		"another site":            {"localhost:8080", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another port":            {"localhost:8080", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"both":                    {"localhost:8080", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Site", "cross-site"}, 403},
		"origin elsewhere":        {"localhost:8080", []string{"Origin", "https://evil.example"}, 403},
		"origin at another port":  {"localhost:8080", []string{"Origin", "http://localhost:3000"}, 403},
		"sandboxed frame":         {"localhost:8080", []string{"Origin", "null"}, 403},
		"origin of no form":       {"localhost:8080", []string{"Origin", "http://%zz"}, 403},
		"one of two origins ours": {"localhost:8080", []string{"Origin", "http://localhost:8080", "Origin", "https://evil.example"}, 403},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, asked("127.0.0.1:9", c.host, c.headers...))
		if w.Code != c.want || (w.Body.String() == "page") != (c.want == 200) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || w.Header().Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: another site may show the answer: %v", name, w.Header())
		}
	}
}
