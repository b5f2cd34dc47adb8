package status

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func openMetrics(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", open1)
		_, _ = io.WriteString(w, page)
	}
}

// hanging writes a part of a page, and no more of it.
func hanging(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if page != "" {
			_, _ = io.WriteString(w, page)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

// Pages of several targets follow one another in their order. Whatever one of them does, the others arrive whole, in
// time.
func TestSeveralTargets(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		for line := []byte(strings.Repeat("b 1\n", 5000)); r.Context().Err() == nil; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		apps   []http.HandlerFunc
		want   string
		kind   string
		failed int
	}{
		"in order":          {[]http.HandlerFunc{text("a 1\n"), text("b 1"), text("c 1\n")}, "a 1\nb 1\nc 1\n", textFormat, 0},
		"an error":          {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, text("b 1\n")}, "b 1\n", textFormat, 1},
		"one hangs at once": {[]http.HandlerFunc{hanging(""), text("b 1\n")}, "b 1\n", textFormat, 1},
		"one hangs midway":  {[]http.HandlerFunc{hanging("a 1\na2 "), text("b 1\n")}, "a 1\nb 1\n", textFormat, 1},
		"OpenMetrics":       {[]http.HandlerFunc{openMetrics("a 1\n# EOF\n"), openMetrics("b 1\n# EOF\n")}, "a 1\nb 1\n# EOF\n", open1, 0},
		"one of each":       {[]http.HandlerFunc{openMetrics("a 1\n# EOF\n"), text("b 1\n")}, "b 1\n", textFormat, 1},
		"one fails":         {[]http.HandlerFunc{hanging(""), openMetrics("b 1\n# EOF\n")}, "b 1\n# EOF\n", open1, 1},
		"one is endless":    {[]http.HandlerFunc{text("a 1\n"), endless, text("c 1\n")}, "c 1\n", textFormat, 1},
	} {
		t.Run(name, func(t *testing.T) {
			url, page, kind := inTime(t, func() string { return serveApps(t, text(envoyPage), nil, nil, c.apps...).URL })
			agent, rest, _ := strings.Cut(page, envoyPage)
			if name == "one is endless" {
				if len(page) > 2*maxAppPage || !strings.HasPrefix(rest, "a 1\nb 1\n") {
					t.Errorf("%d bytes, %.100q", len(page), rest)
				}
				rest = rest[strings.LastIndex(rest, "b 1\n")+4:]
			}
			if !strings.Contains(agent, "\nistio_agent_scrapes_total 1\n") || rest != c.want || kind != c.kind {
				t.Errorf("type %q, the page ends with:\n%s", kind, rest)
			}
			if name == "one is endless" {
				return
			}
			parser := expfmt.NewTextParser(model.UTF8Validation)
			if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
				t.Errorf("the page does not parse: %v", err)
			}
			if page, _ = scraped(t, url); !strings.Contains(page, fmt.Sprintf(`scrape_failures_total{type="application"} %d`, c.failed)) {
				t.Errorf("failures are not %d:\n%s", c.failed, page)
			}
		})
	}
}

// Several targets are requested in plain text, whatever the scraper accepts.
func TestSeveralTargetsAreAskedForText(t *testing.T) {
	asked := make(chan string, 2)
	note := func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Accept") }
	scraped(t, serveApps(t, text(envoyPage), nil, nil, note, note).URL, "Accept", openMedia)
	for range 2 {
		if got := <-asked; got != plainText {
			t.Errorf("asked for %q", got)
		}
	}
}
