package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"mark":   mark,
	"number": number,
	"time":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"mib":    func(n uint64) string { return number(float64(n) / (1 << 20)) },
	"sum":    func(h *gauge.Histogram) gauge.Summary { return h.Summary() },
	"types":  func(m map[string]Traffic) []string { return slices.Sorted(maps.Keys(m)) },
	"kinds":  func(m map[string]Violations) []string { return slices.Sorted(maps.Keys(m)) },
}).Parse(pageText))

// drawn is a scenario with its plots.
type drawn struct {
	Scenario
	Latency template.HTML
	Plots   []template.HTML
}

// HTML is the result as one page: styles and plots are in it, scripts are not, and its policy forbids to fetch anything.
func (r Result) HTML() ([]byte, error) {
	view := struct {
		Result
		Targets template.HTML
		Drawn   []drawn
	}{Result: r}
	var err error
	if view.Targets, err = targetPlot(r); err != nil {
		return nil, err
	}
	for _, s := range r.Scenarios {
		d := drawn{Scenario: s}
		if d.Latency, err = latencyPlot(s.Latencies); err != nil {
			return nil, err
		}
		if d.Plots, err = seriesPlots(s.Series); err != nil {
			return nil, err
		}
		view.Drawn = append(view.Drawn, d)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, view); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// WriteHTML writes the page to a file, which is whole or not there.
func (r Result) WriteHTML(name string) error {
	raw, err := r.HTML()
	if err != nil {
		return err
	}
	return replace(name, raw)
}
