package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"navarch.io/navarch/push/istiometrics"
)

const (
	textFormat = "text/plain; version=0.0.4; charset=utf-8"
	openMedia  = "application/openmetrics-text"

	timeoutHeader = "X-Prometheus-Scrape-Timeout-Seconds"
	defaultBudget = 10 * time.Second // Prometheus' own default
	minBudget     = 500 * time.Millisecond
	maxBudget     = time.Minute
)

// Target is where an application shows its metrics: on localhost, as injection took it from the pod's annotations.
type Target struct {
	Port uint16
	Path string // with its query
}

// ParseTarget reads ISTIO_PROMETHEUS_ANNOTATIONS, {"scrape", "port", "path"}; nil when there is nothing to scrape. own are
// the agent's ports: a target among them would ask itself for ever. Errors: it is no such JSON, no port, or one of own.
func ParseTarget(text string, own ...uint16) (*Target, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var raw struct{ Scrape, Port, Path string }
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("want {\"scrape\": \"true\", \"port\": \"9090\", \"path\": \"/metrics\"}: %w", err)
	}
	if raw.Scrape == "false" {
		return nil, nil
	}
	t := &Target{Port: 80, Path: raw.Path}
	if raw.Port != "" {
		port, err := strconv.ParseUint(raw.Port, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("port %q is none", raw.Port)
		}
		t.Port = uint16(port)
	}
	if t.Path == "" {
		t.Path = "/metrics"
	}
	if !strings.HasPrefix(t.Path, "/") {
		t.Path = "/" + t.Path
	}
	for _, p := range own {
		if t.Port == p {
			return nil, fmt.Errorf("port %d is the agent's own: the page would ask for itself", p)
		}
	}
	return t, nil
}

func (t *Target) url() string { return fmt.Sprintf("http://localhost:%d%s", t.Port, t.Path) }

// counts are of the page itself.
type counts struct {
	scrapes  prometheus.Counter
	failures *prometheus.CounterVec
}

func newCounts() counts {
	c := counts{
		scrapes: prometheus.NewCounter(prometheus.CounterOpts{Name: "scrapes_total", Help: "Requests for the merged metrics."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scrape_failures_total", Help: "Sources that were missing or cut off in the merged metrics.",
		}, []string{"type"}),
	}
	for _, source := range []string{"agent", "envoy", "application"} {
		c.failures.WithLabelValues(source)
	}
	return c
}

func (c counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.scrapes, c.failures}
}

// newFetcher asks without a proxy and without compression, and follows redirects only to where it was sent.
func newFetcher() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme || len(via) >= 10 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// page is the answer of one source.
type page struct {
	body io.ReadCloser
	open bool // OpenMetrics
	kind string
	err  error
}

// metrics is the agent's page, then Envoy's, then the application's, each handed on as it comes. A source that fails is
// left out and counted: it does not take the others with it. The application is last and decides the format, as with
// stock agents.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	all := budget(r.Header.Get(timeoutHeader))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(all))
	ctx, done, ok := s.scrapes.take(w, r)
	defer done()
	if !ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		return
	}
	s.counts.scrapes.Inc()
	// The sources have less time than the scraper gives, so that what they gave still arrives.
	ctx, cancel := context.WithTimeout(ctx, all*8/10)
	defer cancel()

	envoyURL := s.cfg.EnvoyStats
	if r.URL.RawQuery != "" {
		envoyURL += "?" + r.URL.RawQuery
	}
	pages := make(map[string]chan page)
	start := func(source, url string) {
		ch := make(chan page, 1)
		pages[source] = ch
		go func() { ch <- s.fetch(ctx, url, r.Header, all/2) }()
	}
	start("envoy", envoyURL)
	if s.cfg.App != nil {
		start("application", s.cfg.App.url())
	}
	envoy := <-pages["envoy"]
	defer envoy.close()
	app := page{}
	if ch := pages["application"]; ch != nil {
		app = <-ch
		defer app.close()
	}
	w.Header().Set("Content-Type", textFormat)
	if app.open {
		w.Header().Set("Content-Type", app.kind)
	}
	ok = s.note("agent", s.own(w)) && s.note("envoy", s.spell(envoy, w)) && s.note("application", app.copyTo(w))
	if ok && app.open {
		_, _ = w.Write(endLine)
	}
}

// note counts a failure and says whether somebody still listens.
func (s *Server) note(source string, err error) bool {
	if err == nil {
		return true
	}
	s.counts.failures.WithLabelValues(source).Inc()
	s.cfg.Log.Debug("metrics are missing", "of", source, "error", err)
	return !errors.Is(err, errWrite)
}

// spell hands Envoy's page on, Istio's metrics with Istio's names and labels.
func (s *Server) spell(envoy page, w io.Writer) error {
	spelled := istiometrics.NewPage(w, s.cfg.Workload)
	err := envoy.copyTo(spelled)
	if errors.Is(err, errWrite) {
		return err
	}
	if last := spelled.Flush(); last != nil {
		return fmt.Errorf("%w: %w", errWrite, last)
	}
	return err
}

// own writes the agent's metrics.
func (s *Server) own(w io.Writer) error {
	families, err := s.registry.Gather()
	for _, f := range families {
		if _, werr := expfmt.MetricFamilyToText(w, f); werr != nil {
			return fmt.Errorf("%w: %w", errWrite, werr)
		}
	}
	return err
}

// fetch asks one source, which must begin to answer within first.
func (s *Server) fetch(ctx context.Context, url string, from http.Header, first time.Duration) page {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(first, cancel)
	defer late.Stop()
	fail := func(err error) page {
		cancel()
		return page{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Accept", accept(from.Values("Accept")))
	for _, h := range []string{"User-Agent", timeoutHeader} {
		if v := from.Get(h); v != "" {
			req.Header.Set(h, v)
		}
	}
	resp, err := s.fetcher.Do(req)
	if err != nil {
		return fail(err)
	}
	p := page{body: &closing{resp.Body, cancel}}
	media, params, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		p.err = fmt.Errorf("status %d", resp.StatusCode)
	case resp.Header.Get("Content-Encoding") != "":
		p.err = errors.New("it is compressed, which was not asked for")
	case media == openMedia:
		p.open, p.kind = true, openMedia+"; version=0.0.1; charset=utf-8"
		if params["version"] == "1.0.0" {
			p.kind = openMedia + "; version=1.0.0; charset=utf-8"
		}
	case media != "" && media != "text/plain":
		p.err = fmt.Errorf("a page of type %q cannot be merged", media)
	}
	return p
}

func (p page) copyTo(w io.Writer) error {
	if p.err != nil || p.body == nil {
		return p.err
	}
	return copyLines(w, p.body, maxPage, p.open)
}

func (p page) close() {
	if p.body != nil {
		p.body.Close()
	}
}

type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *closing) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// accept keeps of what the scraper takes the formats that can be put one after the other: not protobuf.
func accept(values []string) string {
	var keep []string
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			media, _, _ := strings.Cut(item, ";")
			if media = strings.ToLower(strings.TrimSpace(media)); media == "text/plain" || media == openMedia {
				keep = append(keep, strings.TrimSpace(item))
			}
		}
	}
	if len(keep) == 0 {
		return "text/plain;version=0.0.4"
	}
	return strings.Join(keep, ", ")
}

// budget is how long the scraper waits, in seconds as it says, within bounds.
func budget(header string) time.Duration {
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || !(seconds > 0) {
		return defaultBudget
	}
	return max(minBudget, time.Duration(min(seconds, maxBudget.Seconds())*float64(time.Second)))
}
