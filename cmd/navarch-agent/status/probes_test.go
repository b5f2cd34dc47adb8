package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

func portOf(t *testing.T, l net.Listener) port {
	t.Helper()
	return port(netip.MustParseAddrPort(l.Addr().String()).Port())
}

// app answers as its path requests, and returns the request that it received.
func app(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/bad":
		http.Error(w, "I am not well", http.StatusTeapot)
	case "/elsewhere":
		http.Redirect(w, r, "http://127.0.0.2:1/x", http.StatusFound)
	case "/port":
		http.Redirect(w, r, "http://127.0.0.1:"+r.URL.RawQuery+"/x", http.StatusFound)
	case "/again":
		http.Redirect(w, r, "/fine", http.StatusFound)
	case "/large":
		_, _ = io.WriteString(w, strings.Repeat("x", 10*maxAnswer))
	case "/slow":
		<-r.Context().Done()
	default:
		listed, agent, from := r.Header["Listed"], r.UserAgent(), r.RemoteAddr
		for _, known := range []string{"Listed", "User-Agent", "Connection"} {
			r.Header.Del(known)
		}
		fmt.Fprintf(w, "%s host=%s listed=%v agent=%s others=%v v=%d from=%s", r.URL, r.Host, listed, agent, r.Header, r.ProtoMajor, from)
	}
}

// The kubelet's probes reach the application, and get the same answers as without a proxy.
// Promise: security-connections.md#ports-of-an-agent
func TestProbes(t *testing.T) {
	plain, secure := httptest.NewServer(http.HandlerFunc(app)), httptest.NewUnstartedServer(http.HandlerFunc(app))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	h := health.NewServer()
	h.SetServingStatus("down", healthv1.HealthCheckResponse_NOT_SERVING)
	gs := grpc.NewServer()
	healthv1.RegisterHealthServer(gs, h)
	gl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = gs.Serve(gl) }()
	t.Cleanup(gs.Stop)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	p, s, g, no := portOf(t, plain.Listener), portOf(t, secure.Listener), portOf(t, gl), portOf(t, closed)
	for name, c := range map[string]struct {
		probe string // as injection writes it
		code  int
		body  string
	}{
		"fine":          {fmt.Sprintf(`{"httpGet":{"path":"fine?a=b","port":%d,"host":"10.9.9.9","httpHeaders":[{"name":"Listed","value":"l"},{"name":"listed","value":"m"}]}}`, p), 200, fmt.Sprintf("/fine?a=b host=127.0.0.1:%d listed=[l m] agent=kube-probe/1 others=map[Accept:[*/*]] v=1 from=127.0.0.6:", p)},
		"listed agent":  {fmt.Sprintf(`{"httpGet":{"path":"/","port":%d,"httpHeaders":[{"name":"User-Agent","value":"mine"},{"name":"Accept","value":""}]}}`, p), 200, "listed=[] agent=mine others=map[] v=1"},
		"another port":  {fmt.Sprintf(`{"httpGet":{"path":"/port?%d","port":%d}}`, no, p), 500, "refused"},
		"host":          {fmt.Sprintf(`{"httpGet":{"path":"/","port":%d,"httpHeaders":[{"name":"Host","value":"shop"}]}}`, p), 200, "host=shop"},
		"bad":           {fmt.Sprintf(`{"httpGet":{"path":"/bad","port":%d}}`, p), 418, "I am not well"},
		"HTTPS":         {fmt.Sprintf(`{"httpGet":{"path":"/","port":%d,"scheme":"HTTPS"}}`, s), 200, "v=2"},
		"not HTTPS":     {fmt.Sprintf(`{"httpGet":{"path":"/","port":%d,"scheme":"HTTPS"}}`, p), 500, ""},
		"elsewhere":     {fmt.Sprintf(`{"httpGet":{"path":"/elsewhere","port":%d}}`, p), 200, ""},
		"again":         {fmt.Sprintf(`{"httpGet":{"path":"/again","port":%d}}`, p), 200, "/fine"},
		"large":         {fmt.Sprintf(`{"httpGet":{"path":"/large","port":%d}}`, p), 200, strings.Repeat("x", maxAnswer)},
		"slow":          {fmt.Sprintf(`{"httpGet":{"path":"/slow","port":%d},"timeoutSeconds":1}`, p), 500, "deadline"},
		"nobody":        {fmt.Sprintf(`{"httpGet":{"path":"/","port":%d}}`, no), 500, "refused"},
		"TCP":           {fmt.Sprintf(`{"tcpSocket":{"port":%d}}`, p), 200, ""},
		"TCP nobody":    {fmt.Sprintf(`{"tcpSocket":{"port":%d}}`, no), 500, "refused"},
		"gRPC":          {fmt.Sprintf(`{"grpc":{"port":%d}}`, g), 200, ""},
		"gRPC down":     {fmt.Sprintf(`{"grpc":{"port":%d,"service":"down"}}`, g), 500, "NOT_SERVING"},
		"gRPC stranger": {fmt.Sprintf(`{"grpc":{"port":%d,"service":"who"}}`, g), 500, "unknown service"},
		"gRPC nobody":   {fmt.Sprintf(`{"grpc":{"port":%d}}`, no), 500, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			code, b := probed(t, c.probe)
			if code != c.code || !strings.Contains(b, c.body) || len(b) > maxAnswer+100 {
				t.Errorf("%d %.300q, want %d %.300q", code, b, c.code, c.body)
			}
		})
	}
}

// probed returns the kubelet's response for a probe of the application.
func probed(t *testing.T, probe string) (code int, answer string) {
	t.Helper()
	probes, err := ParseProbes(`{"/app-health/a/livez":` + probe + `}`)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, serve(t, text(""), nil, probes).URL+"/app-health/a/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "pod:15020"
	for name, value := range map[string]string{"X": "y", "Authorization": "Bearer theirs", "X-Forwarded-For": "10.0.0.1", "Cookie": "a=b", "Accept": "text/html"} {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "kube-probe/1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Only listed probes are sent.
// Promise: security-connections.md#ports-of-an-agent
func TestUnlistedProbes(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the application was asked") }))
	t.Cleanup(plain.Close)
	at := portOf(t, plain.Listener)
	url := serve(t, text(""), nil, Probes{"/app-health/a/livez": {HTTP: &HTTPProbe{Port: at}}}).URL
	for _, path := range []string{"/app-health/a/readyz", "/app-health/", "/app-health/a/livez/", "/app-lifecycle/a/livez", fmt.Sprintf("/app-health/127.0.0.1:%d/livez", at)} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

func TestParseProbesNamesTheFault(t *testing.T) {
	for in, want := range map[string]string{
		`{`: "unexpected end", `{"/x":{"tcpSocket":{"port":1}}}`: "/x: want /app-health",
		`{"/app-health/a/prestopz":{"tcpSocket":{"port":1}}}`: "prestopz: want", `{"/app-health//livez":{"tcpSocket":{"port":1}}}`: "want /app-health",
		`{"/app-health/a/livez":{}}`: "0 of httpGet", `{"/app-health/a/livez":{"grpc":{"port":1},"tcpSocket":{"port":1}}}`: "2 of httpGet",
		`{"/app-health/a/livez":{"tcpSocket":{}}}`: "no port", `{"/app-health/a/livez":{"tcpSocket":{"port":"http"}}}`: `port "http"`,
		`{"/app-health/a/livez":{"tcpSocket":{"port":70000}}}`: "port 70000", `{"/app-health/a/livez":{"httpGet":{"port":1,"scheme":"FTP"}}}`: `"FTP"`,
		`{"/app-health/a/livez":{"httpGet":{"port":1,"path":"/%zz"}}}`: "invalid URL escape",
	} {
		if _, err := ParseProbes(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not name %s", in, err, want)
		}
	}
}

func FuzzParseProbes(f *testing.F) {
	f.Add(`{"/app-health/a/livez":{"httpGet":{"path":"/x","port":80,"scheme":"HTTPS","httpHeaders":[{"name":"a","value":"b"}]},"timeoutSeconds":3}}`)
	f.Add(`{"/app-lifecycle/a/prestopz":{"grpc":{"port":80,"service":null}}}`)
	f.Fuzz(func(t *testing.T, in string) {
		all, err := ParseProbes(in)
		if err != nil {
			return
		}
		for path, p := range all {
			if p.timeout() <= 0 || p.timeout() > maxTimeout || !strings.HasPrefix(path, "/app-") {
				t.Fatalf("%s: %+v", path, p)
			}
		}
		b, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProbes(string(b)); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	})
}

// Only this machine can end the agent or drain Envoy, and only by POST.
// Promise: security-connections.md#who-is-on-the-same-machine
func TestQuitIsLocal(t *testing.T) {
	did := map[string]int{}
	s, err := New(Config{Ready: func(context.Context) error { return nil }, EnvoyStats: "127.0.0.1:1", Quit: func() { did["/quitquitquit"]++ }, Drain: func() { did["/drain"]++ }})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method, remote string
		code           int
		site           string
	}{
		"here":                {"POST", "127.0.0.1:9", 200, ""},
		"here, IPv6":          {"POST", "[::1]:9", 200, ""},
		"here, mapped":        {"POST", "[::ffff:127.0.0.1]:9", 200, ""},
		"a read":              {"GET", "127.0.0.1:9", 405, ""},
		"another machine":     {"POST", "10.0.0.1:9", 403, ""},
		"handed on by Envoy":  {"POST", "127.0.0.6:9", 403, ""},
		"the same, mapped":    {"POST", "[::ffff:127.0.0.6]:9", 403, ""},
		"a page of a browser": {"POST", "127.0.0.1:9", 403, "cross-site"},
		"nobody":              {"POST", "", 403, ""},
	} {
		for _, path := range []string{"/quitquitquit", "/drain"} {
			clear(did)
			w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, path, nil)
			r.RemoteAddr, r.Host = c.remote, "localhost:15020"
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			s.Handler().ServeHTTP(w, r)
			want := map[string]int{}
			if c.code == 200 {
				want[path] = 1
			}
			if w.Code != c.code || !maps.Equal(did, want) {
				t.Errorf("%s, %s: %d, done: %v", path, name, w.Code, did)
			}
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/drain", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:9", "localhost:15020"
	clear(did)
	if s.Health().ServeHTTP(w, r); w.Code != http.StatusNotFound || len(did) > 0 {
		t.Errorf("at the port that is open everywhere: %d, done: %v", w.Code, did)
	}
}
