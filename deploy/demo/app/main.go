// Command app is the only application of the demo's shop. It identifies itself in its answers, calls other services
// through its Envoy, and fails or delays on request.
//
// Owns: its faults. Reads: flags. Never: depends on the mesh; it knows names of services and one address for its calls.
//
// Requests:
//   - GET / identifies the instance: {"name", "version", "host", "path", "caller"}. caller is X-Forwarded-Client-Cert,
//     the proxy's statement about the caller.
//   - GET /call/UPSTREAM/PATH calls UPSTREAM and returns the result: {"upstream", "status", "ms", "body", "error"}.
//   - GET /_fail?ratio=R&status=S answers the share R of later requests with status S.
//   - GET /_delay?ms=N delays later requests by N ms.
//   - GET /metrics returns the number of answered requests, in Prometheus' format.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// upstreams maps a short name to a URL, from the flags --upstream name=url.
type upstreams map[string]*url.URL

func (u upstreams) String() string { return fmt.Sprint(len(u)) }

func (u upstreams) Set(s string) error {
	name, raw, ok := strings.Cut(s, "=")
	to, err := url.Parse(raw)
	if !ok || err != nil || name == "" || to.Host == "" {
		return fmt.Errorf("want name=http://host[:port], got %q", s)
	}
	u[name] = to
	return nil
}

// hosts maps names to addresses, from the flags --resolve name=ip.
type hosts map[string]string

func (h hosts) String() string { return fmt.Sprint(len(h)) }

func (h hosts) Set(s string) error {
	name, ip, ok := strings.Cut(s, "=")
	if !ok || net.ParseIP(ip) == nil {
		return fmt.Errorf("want name=ip, got %q", s)
	}
	h[name] = ip
	return nil
}

type fault struct {
	ratio  float64
	status int
}

type app struct {
	name, version, host string
	to                  upstreams
	client              *http.Client
	fault               atomic.Pointer[fault]
	delay               atomic.Int64 // nanoseconds
	served              atomic.Uint64
}

func main() {
	a, resolve := &app{to: upstreams{}}, hosts{}
	addr := flag.String("addr", "127.0.0.1:9080", "Where to listen; several with commas between.")
	flag.StringVar(&a.name, "name", "app", "Name in the answer.")
	flag.StringVar(&a.version, "version", "v1", "Version in the answer.")
	egress := flag.String("egress", "",
		"Envoy's egress listener: calls go there, with the upstream's host in the Host header; empty: to the host itself.")
	flag.Var(a.to, "upstream", "name=http://host[:port], may be repeated.")
	flag.Var(resolve, "resolve", "name=ip, instead of asking DNS; may be repeated.")
	flag.Parse()
	a.host, _ = os.Hostname()
	a.host = cmp.Or(a.host, "?") + "/" + *addr
	a.client = newClient(*egress, resolve)
	srv := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
	for _, one := range strings.Split(*addr, ",") {
		l, err := net.Listen("tcp", one)
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("%s %s on %s", a.name, a.version, one)
		go func() { log.Fatal(srv.Serve(l)) }()
	}
	select {}
}

// newClient returns a client that sends all requests to egress, if that is set. Otherwise it sends them to the
// upstream's host, which resolve or else DNS resolves.
func newClient(egress string, resolve hosts) *http.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	return &http.Client{
		Timeout: 15 * time.Second,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if host, port, err := net.SplitHostPort(addr); err == nil && resolve[host] != "" {
					addr = net.JoinHostPort(resolve[host], port)
				}
				return dialer.DialContext(ctx, network, cmp.Or(egress, addr))
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ServeHTTP answers the requests of the package's page.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/_fail":
		a.setFault(w, r.URL.Query())
		return
	case r.URL.Path == "/_delay":
		ms, err := strconv.Atoi(r.URL.Query().Get("ms"))
		if err != nil || ms < 0 {
			http.Error(w, "ms: want a number", http.StatusBadRequest)
			return
		}
		a.delay.Store(int64(time.Duration(ms) * time.Millisecond))
		answer(w, http.StatusOK, map[string]int{"ms": ms})
		return
	case r.URL.Path == "/metrics":
		fmt.Fprintf(w, "# TYPE app_served_total counter\napp_served_total %d\n", a.served.Load())
		return
	}
	a.served.Add(1)
	if d := time.Duration(a.delay.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	if f := a.fault.Load(); f != nil && rand.Float64() < f.ratio {
		answer(w, f.status, map[string]any{"name": a.name, "version": a.version, "fault": f.status})
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/call/"); ok {
		a.call(w, r, rest)
		return
	}
	answer(w, http.StatusOK,
		map[string]any{"name": a.name, "version": a.version, "host": a.host, "path": r.URL.Path, "served": a.served.Load(),
			"caller": r.Header.Get("X-Forwarded-Client-Cert")})
}

func (a *app) setFault(w http.ResponseWriter, q url.Values) {
	ratio, err := strconv.ParseFloat(q.Get("ratio"), 64)
	status := http.StatusServiceUnavailable
	if s := q.Get("status"); err == nil && s != "" {
		status, err = strconv.Atoi(s)
	}
	if err != nil || ratio < 0 || ratio > 1 || status < 200 || status > 599 {
		http.Error(w, "want ratio=0..1 and status=200..599", http.StatusBadRequest)
		return
	}
	a.fault.Store(&fault{ratio, status})
	answer(w, http.StatusOK, map[string]any{"ratio": ratio, "status": status})
}

// call sends r to an upstream, with the user's headers (X-..., End-User), and wraps the response.
func (a *app) call(w http.ResponseWriter, r *http.Request, rest string) {
	name, path, _ := strings.Cut(rest, "/")
	base, ok := a.to[name]
	if !ok {
		http.Error(w, fmt.Sprintf("no upstream %q", name), http.StatusNotFound)
		return
	}
	to := *base
	to.Path, to.RawQuery = "/"+path, r.URL.RawQuery
	out, err := http.NewRequestWithContext(r.Context(), r.Method, to.String(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for k, v := range r.Header {
		// Headers that proxies add are valid for one hop.
		if (strings.HasPrefix(k, "X-") && !strings.HasPrefix(k, "X-Envoy-") &&
			!strings.HasPrefix(k, "X-Forwarded-") && k != "X-Request-Id") || k == "End-User" {
			out.Header[k] = v
		}
	}
	began := time.Now()
	result := map[string]any{"upstream": name}
	if resp, err := a.client.Do(out); err != nil {
		result["status"], result["error"] = 0, err.Error()
	} else {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		resp.Body.Close()
		result["status"] = resp.StatusCode
		if err != nil {
			result["error"] = err.Error()
		}
		if json.Valid(body) {
			result["body"] = json.RawMessage(body)
		} else {
			result["body"] = string(body)
		}
	}
	result["ms"] = time.Since(began).Milliseconds()
	answer(w, http.StatusOK, result)
}

// answer writes once: two small writes cost 40 ms if the peer delays its ACK.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	b = append(b, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
