package status

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/scrape"
)

const (
	deadline  = time.Minute
	envoyPage = "# TYPE envoy_up gauge\nenvoy_up 1\n"
	open1     = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// serve starts a status server over an Envoy and an application that are handlers; app may be nil.
func serve(t *testing.T, envoy, app http.HandlerFunc, probes Probes) *httptest.Server {
	t.Helper()
	return serveTo(t, envoy, app, probes, nil)
}

// serveTo works like serve, with a log of events that clients cause.
func serveTo(t *testing.T, envoy, app http.HandlerFunc, probes Probes, clients *obs.Sampled) *httptest.Server {
	t.Helper()
	if app == nil {
		return serveApps(t, envoy, probes, clients)
	}
	return serveApps(t, envoy, probes, clients, app)
}

// serveApps works like serveTo, with any number of targets.
func serveApps(t *testing.T, envoy http.HandlerFunc, probes Probes, clients *obs.Sampled, apps ...http.HandlerFunc) *httptest.Server {
	t.Helper()
	e := httptest.NewServer(envoy)
	t.Cleanup(e.Close)
	cfg := Config{
		Ready: func(context.Context) error { return errors.New("no certificate") }, Quit: func() {}, Drain: func() {},
		EnvoyStats: e.URL + "/stats/prometheus", Probes: probes, ProbeHost: "127.0.0.1", Workload: istiometrics.Workload{Name: "web-v1"},
	}
	for _, app := range apps {
		a := httptest.NewServer(app)
		t.Cleanup(a.Close)
		cfg.Apps = append(cfg.Apps, scrape.Target{Port: netip.MustParseAddrPort(a.Listener.Addr().String()).Port(), Path: "/metrics?all"})
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, s.Handler(), clients) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &httptest.Server{URL: "http://" + l.Addr().String(), Listener: l}
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, page)
	}
}

func scraped(t *testing.T, url string, headers ...string) (page, kind string) {
	t.Helper()
	page, kind, err := tryScrape(url, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return page, kind
}

func tryScrape(url string, headers ...string) (page, kind string, err error) {
	req, err := http.NewRequest(http.MethodGet, url+"/stats/prometheus?usedonly", nil)
	if err != nil {
		return "", "", err
	}
	req.Header.Set(timeoutHeader, "1")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: deadline}
	resp, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), resp.Header.Get("Content-Type"), err
}

// inTime scrapes a new server within the available second. A busy machine may need that time once, and the server then
// disconnects; it does not fail each time.
func inTime(t *testing.T, fresh func() string) (url, page, kind string) {
	t.Helper()
	for end := time.Now().Add(deadline); ; {
		url = fresh()
		began := time.Now()
		page, kind, err := tryScrape(url)
		if took := time.Since(began); err == nil && took <= time.Second {
			return url, page, kind
		} else if time.Now().After(end) {
			t.Fatalf("it took %v of the second that there was: %v", took, err)
		}
	}
}

// Whatever the application does, the agent's and Envoy's metrics arrive whole, in time, in a page that parses.
func TestMergedMetrics(t *testing.T) {
	typed := func(kind, page string, more ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			for i := 0; i < len(more); i += 2 {
				w.Header().Set(more[i], more[i+1])
			}
			_, _ = io.WriteString(w, page)
		}
	}
	other := httptest.NewServer(text("app_stolen 1\n"))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		app    http.HandlerFunc
		want   string // of the application
		kind   string
		failed bool
	}{
		"no application": {nil, "", textFormat, false},
		"text":           {typed("text/plain", "app_x 1"), "app_x 1\n", textFormat, false},
		"no type":        {typed("", "app_x 1\n"), "app_x 1\n", textFormat, false},
		"OpenMetrics":    {typed(open1, "app_x 1\n# EOF\n"), "app_x 1\n# EOF\n", open1, false},
		"error":          {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, "", textFormat, true},
		"protobuf":       {typed("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily", "\x00\x01"), "", textFormat, true},
		"compressed":     {typed("text/plain", "\x1f\x8b", "Content-Encoding", "gzip"), "", textFormat, true},
		"elsewhere":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "", textFormat, true},
		"hangs at once":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", textFormat, true},
		"hangs midway": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "app_x 1\napp_y ")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "app_x 1\n", textFormat, true},
	} {
		t.Run(name, func(t *testing.T) {
			url, page, kind := inTime(t, func() string { return serve(t, text(envoyPage), c.app, nil).URL })
			agent, rest, _ := strings.Cut(page, envoyPage)
			if !strings.Contains(agent, "\nistio_agent_scrapes_total 1\n") || rest != c.want || kind != c.kind {
				t.Errorf("type %q, page:\n%s", kind, page)
			}
			parser := expfmt.NewTextParser(model.UTF8Validation)
			if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
				t.Errorf("the page does not parse: %v", err)
			}
			page, _ = scraped(t, url)
			if counted := strings.Contains(page, `scrape_failures_total{type="application"} 1`); counted != c.failed {
				t.Errorf("failure counted: %v, want %v", counted, c.failed)
			}
		})
	}
}

// An application that hangs leaves enough time for a page of Envoy that fits no buffer.
func TestHangingApplicationLeavesTime(t *testing.T) {
	t.Parallel() // it waits for half of its time, and has a third of it for what takes a moment where the machine has nothing else to do
	large := strings.Repeat("# padding padding padding padding padding padding padding padding\n", 12<<20/66) + envoyPage
	page, _ := scraped(t, serve(t, text(large), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil).URL, timeoutHeader, "30")
	if !strings.HasSuffix(page, envoyPage) {
		t.Errorf("%d bytes of %d arrived", len(page), len(large))
	}
}

// Without Envoy the other sources are present; the request is passed on, except formats that cannot be merged.
func TestScrapeIsPassedOn(t *testing.T) {
	asked := make(chan *http.Request, 2)
	note := func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		http.Error(w, "no", 500)
	}
	url := serve(t, note, note, nil).URL
	page, _ := scraped(t, url, "Accept", "application/vnd.google.protobuf;proto=x;q=0.9, application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1", "User-Agent", "Prometheus/3")
	if !strings.Contains(page, "istio_agent_scrapes_total 1") {
		t.Error(page)
	}
	for range 2 {
		r := <-asked
		if r.Header.Get("Accept") != "application/openmetrics-text;version=1.0.0;q=0.5" || r.UserAgent() != "Prometheus/3" || r.Header.Get(timeoutHeader) != "1" {
			t.Errorf("%s was asked with %v", r.URL, r.Header)
		}
		if u := r.URL.String(); u != "/stats/prometheus?usedonly" && u != "/metrics?all" {
			t.Errorf("%s was asked", u)
		}
	}
}

// Scrapers that do not read occupy only their own slots, and no longer than the time limit in their request.
// Promise: security-connections.md#ports-of-an-agent
func TestHangingScrapers(t *testing.T) {
	line := bytes.Repeat([]byte("envoy_x 1\n"), 3000)
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
	target := httptest.NewServer(text("ok"))
	t.Cleanup(target.Close)
	at := port(netip.MustParseAddrPort(target.Listener.Addr().String()).Port())
	probes := Probes{"/app-health/a/livez": {HTTP: &HTTPProbe{Port: at}}}
	s := serve(t, endless, nil, probes)
	for range maxScrapes {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n%s: 2\r\n\r\n", timeoutHeader)
		if _, err := bufio.NewReaderSize(c, 16).ReadByte(); err != nil { // the request has begun
			t.Fatal(err)
		}
	}
	status := func(path string) int {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if refused, ready, probe := status("/metrics"), status("/healthz/ready"), status("/app-health/a/livez"); refused != 503 || ready != 503 || probe != 200 {
		t.Errorf("meanwhile: scrape %d, readiness %d, probe %d", refused, ready, probe)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(deadline); status("/metrics") == 503; <-tick.C {
		if time.Now().After(limit) {
			t.Fatal("the slots are never free")
		}
	}
}

func TestBudget(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": defaultBudget, "x": defaultBudget, "NaN": defaultBudget, "-1": defaultBudget, "0": defaultBudget, "0.001": minBudget, "2.5": 2500 * time.Millisecond,
		"1e300": maxBudget, "+Inf": maxBudget,
	} {
		if got := budget(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// Istio's metrics have Istio's names and labels on the merged page, also those at the end of Envoy's page. An
// application's page is not changed.
func TestIstioMetrics(t *testing.T) {
	const counted = `envoy_istio_requests_total{reporter="source",without="source_app"} 1` + "\n"
	page, _ := scraped(t, serve(t, text(envoyPage+counted), text(counted), nil).URL)
	if !strings.Contains(page, "\nenvoy_up 1\nistio_requests_total{reporter=\"source\",source_workload=\"web-v1\",") || !strings.HasSuffix(page, "\n"+counted) {
		t.Error(page)
	}
}
