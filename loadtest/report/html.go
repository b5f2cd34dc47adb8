package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"maps"
	"math"
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

// aim is a figure that was judged, with the length of its bar.
type aim struct {
	Row
	Scenario string
	First    bool    // of its scenario
	Bar      float64 // percent of the widest, where the target is at half
}

// aims are the figures that have a verdict. A bar is the value by the target, or where more is better the target by the
// value: half of the column is the target, less is better, and all of it is twice the target or more.
func aims(r Result) []aim {
	var all []aim
	for _, s := range r.Scenarios {
		first := true
		for _, row := range s.Rows {
			if row.Verdict == None {
				continue
			}
			a := aim{Row: row, Scenario: s.Name, First: first}
			ratio := row.Value / *row.Target
			if row.Better == More {
				ratio = *row.Target / row.Value
			}
			switch {
			case row.Value == *row.Target:
				ratio = 1
			case math.IsNaN(ratio) || ratio < 0:
				ratio = 2
			}
			if *row.Target == 0 && row.Value == 0 {
				ratio = 0
			}
			a.Bar = 50 * min(ratio, 2)
			all, first = append(all, a), false
		}
	}
	return all
}

// HTML is the result as one page: styles and plots are in it, scripts are not, and its policy forbids to fetch anything.
func (r Result) HTML() ([]byte, error) {
	view := struct {
		Result
		Aims        []aim
		Met, Missed int
		Drawn       []drawn
	}{Result: r, Aims: aims(r)}
	for _, a := range view.Aims {
		if a.Verdict == Pass {
			view.Met++
		} else {
			view.Missed++
		}
	}
	var err error
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
