package page

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/report"
)

// example returns a result with figures that met their targets and one that did not, plots, and texts that a hostile
// server may have chosen.
func example() report.Result {
	h := &gauge.Histogram{}
	for i := range 1000 {
		h.Record(time.Duration(i) * time.Millisecond)
	}
	to := func(v float64) *float64 { return &v }
	return report.Result{Version: report.Version, Label: "navarch", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Scenarios: []report.Scenario{{
		Name: "endpoint", Title: "one endpoint changes", World: "world-a", Scale: 1, Proxies: 1000, Replicas: 1, MTLS: true,
		Rows: []report.Row{
			report.Row{Name: "last", Unit: "ms", Value: 71.23456, Target: to(80), Better: report.Less, Compare: "istiod 272 ms"}.Judge(1),
			report.Row{Name: "CPU", Unit: "s", Value: .3, Target: to(.1), Better: report.Less}.Judge(1),
			report.Row{Name: "rate", Unit: "1/s", Value: 25000, Target: to(20000), Better: report.More}.Judge(1),
		},
		Latencies: []report.Latency{{Name: "commit to ACK", Histogram: h}, {Name: "nothing", Histogram: &gauge.Histogram{}}},
		Series: []report.Series{{Name: "replica 1", Group: "memory", Unit: "MiB", Points: [][2]float64{{0, 10}, {1, 20}}},
			{Name: "one point", Group: "cpu", Unit: "%", Points: [][2]float64{{0, 1}}}},
		Processes:  []report.Process{{Name: "replica-1", CPU: 1.5, PeakRSS: 3 << 20, LastRSS: 2 << 20}},
		Violations: map[string]report.Violations{"duplicate": {Count: 2, Examples: []string{"<script>alert(1)</script>"}}},
		Notes:      []string{"a note"}, Failed: "<b>it broke</b>",
	}}}
}

var (
	fetches = regexp.MustCompile(`(?i)(?:src|href|action|data|url)\s*[=(]\s*["']?\s*(?:https?:)?//|<script|<link|<iframe|@import|<image`)
	anchors = regexp.MustCompile(`href="([^"]*)"`)
)

// The page loads no other file, escapes servers' texts, and has every scenario, figure and plot.
func TestPageStandsAlone(t *testing.T) {
	raw, err := OfResult(example())
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if found := fetches.FindString(text); found != "" {
		t.Errorf("the page has %q", found)
	}
	for _, m := range anchors.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "#") {
			t.Errorf("the page refers to %s", m[1])
		}
	}
	for _, want := range []string{"default-src 'none'", "one endpoint changes", "71.2 ms", "MISSED", "istiod 272 ms", "&lt;b&gt;it broke", "&lt;script&gt;", "a note",
		"Latency by percentile", "memory", "2 targets met", "1 missed", "replica-1", `style="width: 44.5216%"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(text, "<svg"); n != 2 { // latency, memory; no plot of a single point
		t.Errorf("%d plots", n)
	}
	for i, part := range strings.Split(text, "<svg")[1:] {
		svg, _, _ := strings.Cut("<svg"+part, "</svg>")
		d := xml.NewDecoder(strings.NewReader(svg + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("plot %d: %v", i, err)
			}
		}
	}
}

// The page of a comparison loads no other file, escapes labels, and has medians, ranges and results.
func TestComparisonPage(t *testing.T) {
	runs := func(label string, offset time.Duration, values ...float64) (all []report.Result) {
		for i, v := range values {
			all = append(all, report.Result{Label: label, Started: time.Unix(0, 0).Add(time.Duration(i)*time.Minute + offset), Scenarios: []report.Scenario{
				{Name: "endpoint", Scale: 1, Proxies: 10, Rows: []report.Row{{Name: "last", Unit: "ms", Value: v, Better: report.Less}}}}})
		}
		return all
	}
	c, err := report.Compare(runs("<b>a", 0, 10, 11, 12), runs("b", 30*time.Second, 22, 20, 24))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := OfComparison(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if found := fetches.FindString(text); found != "" || strings.Contains(text, "<b>a") {
		t.Errorf("the page has %q", found)
	}
	for _, want := range []string{"0 better", "1 worse", "the runs took turns", "10 to 12, 3 runs", "&#43;100.0 %", `class="worse">worse`, `margin-left: 83.3333`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
