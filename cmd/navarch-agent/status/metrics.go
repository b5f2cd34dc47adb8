package status

import (
	"cmp"
	"context"
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
	plainText  = "text/plain;version=0.0.4" // as in a request's Accept header

	timeoutHeader = "X-Prometheus-Scrape-Timeout-Seconds"
	defaultBudget = 10 * time.Second // Prometheus' own default
	minBudget     = 500 * time.Millisecond
	maxBudget     = time.Minute
)

// counts are the agent's own metrics about requests for the merged page (metrics of agent, Envoy and application).
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

// newFetcher returns an HTTP client that uses no HTTP proxy and requests no compression. It follows up to nine
// redirects, and only within the scheme and host:port of the first request. Any other redirect is returned as the
// response.
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

// page is the response of one source: Envoy or one target of the application.
type page struct {
	body   io.ReadCloser
	cancel context.CancelFunc // stops reading the body
	open   bool               // the format is OpenMetrics
	kind   string             // content type of an OpenMetrics page; empty for plain text
	err    error              // reason why the page cannot be merged; nil: it can
}

// metrics writes the agent's metrics, then Envoy's page, then the application's pages, without buffering whole pages.
// The page of a failing source is left out or cut off after a whole line, and the failure is counted. The other pages
// are still written. The application's pages come last and determine the format, as in Istio's agents.
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
	// The sources get less time than the scraper allows, so that their pages still reach the scraper.
	ctx, cancel := context.WithTimeout(ctx, all*8/10)
	defer cancel()

	envoyURL := s.cfg.EnvoyStats
	if r.URL.RawQuery != "" {
		envoyURL += "?" + r.URL.RawQuery
	}
	start := func(url, formats string) chan page {
		ch := make(chan page, 1)
		go func() { ch <- s.fetch(ctx, url, formats, r.Header, all/2) }()
		return ch
	}
	formats := accept(r.Header.Values("Accept"))
	envoys := start(envoyURL, formats)
	apps := s.startApps(start, formats)
	envoy := <-envoys
	defer envoy.close()
	pages, kind := awaitApps(apps)
	for _, p := range pages {
		defer p.close()
	}
	w.Header().Set("Content-Type", cmp.Or(kind, textFormat))
	ok = s.countFailure("agent", s.writeOwn(w)) && s.countFailure("envoy", s.copyEnvoy(envoy, w)) && s.copyApps(ctx, w, pages)
	if ok && kind != "" {
		_, _ = w.Write(endLine)
	}
}

// countFailure counts a failure of source unless err is nil. It returns false if err wraps errWrite, which means that
// the scraper has disconnected.
func (s *Server) countFailure(source string, err error) bool {
	if err == nil {
		return true
	}
	s.counts.failures.WithLabelValues(source).Inc()
	s.cfg.Log.Debug("metrics are missing", "of", source, "error", err)
	return !errors.Is(err, errWrite)
}

// copyEnvoy writes Envoy's page to w, with Istio's names and labels for request metrics. It returns an error if the
// page cannot be read. If w cannot be written, the error wraps errWrite.
func (s *Server) copyEnvoy(envoy page, w io.Writer) error {
	spelled := istiometrics.NewPage(w, s.cfg.Workload)
	err := envoy.copyTo(spelled, maxPage)
	if errors.Is(err, errWrite) {
		return err
	}
	if last := spelled.Flush(); last != nil {
		return fmt.Errorf("%w: %w", errWrite, last)
	}
	return err
}

// writeOwn writes the agent's metrics in plain text. If a metric cannot be collected, it writes the other metrics and
// returns an error. If w cannot be written, the error wraps errWrite.
func (s *Server) writeOwn(w io.Writer) error {
	families, err := s.registry.Gather()
	for _, f := range families {
		if _, werr := expfmt.MetricFamilyToText(w, f); werr != nil {
			return fmt.Errorf("%w: %w", errWrite, werr)
		}
	}
	return err
}

// fetch requests a page from one source. The parameter formats is the value of the request's Accept header. The
// parameter scraper has the headers of the scraper's request. The response must begin within the duration wait. Its
// body may be read until ctx ends. The result's err is set if there is no response, or if the response has a status
// other than 200, a compressed body, or a content type that cannot be merged.
func (s *Server) fetch(ctx context.Context, url, formats string, scraper http.Header, wait time.Duration) page {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(wait, cancel)
	defer late.Stop()
	fail := func(err error) page {
		cancel()
		return page{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Accept", formats)
	for _, h := range []string{"User-Agent", timeoutHeader} {
		if v := scraper.Get(h); v != "" {
			req.Header.Set(h, v)
		}
	}
	resp, err := s.fetcher.Do(req)
	if err != nil {
		return fail(err)
	}
	p := page{body: &closing{resp.Body, cancel}, cancel: cancel}
	media, params, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		p.err = fmt.Errorf("status %d", resp.StatusCode)
	case resp.Header.Get("Content-Encoding") != "":
		p.err = fmt.Errorf("a page with Content-Encoding %q cannot be merged", resp.Header.Get("Content-Encoding"))
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

// copyTo writes the page to w in whole lines. The errors are page.err and those of copyLines.
func (p page) copyTo(w io.Writer, limit int64) error {
	if p.err != nil || p.body == nil {
		return p.err
	}
	return copyLines(w, p.body, limit, p.open)
}

func (p page) close() {
	if p.body != nil {
		p.body.Close()
	}
}

// closing is a response body with the cancel function of its request.
type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer. It also ends the request's context.
func (c *closing) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// accept returns the plain text and OpenMetrics items of the scraper's Accept headers, as one Accept header. Other
// formats, such as protobuf, cannot be concatenated. If no item is left, it returns plainText.
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
		return plainText
	}
	return strings.Join(keep, ", ")
}

// budget parses the scraper's time limit, in seconds, and raises or lowers it to the range from minBudget to maxBudget.
// For an empty, invalid or non-positive header it returns defaultBudget.
func budget(header string) time.Duration {
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || !(seconds > 0) {
		return defaultBudget
	}
	return max(minBudget, time.Duration(min(seconds, maxBudget.Seconds())*float64(time.Second)))
}
