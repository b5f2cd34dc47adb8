// Package page renders a result, or the comparison of two sets of runs, as one self-contained HTML page with plots. It
// is separate from loadtest/report because its fonts and image formats would be linked into every user of that package.
//
// Owns: nothing. Reads: loadtest/report. Never: decides whether a figure meets its target.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/report"
)

//go:embed page.html
var pageText string

//go:embed compare.html
var compareText string

//go:embed style.css
var style string

var (
	resultPage     = template.Must(template.New("page").Funcs(functions).Parse(pageText))
	comparisonPage = template.Must(template.New("compare").Funcs(functions).Parse(compareText))
)

var functions = template.FuncMap{
	"style":   func() template.CSS { return template.CSS(style) },
	"percent": func(share float64) string { return fmt.Sprintf("%+.1f %%", 100*share) },
	"mark":    report.Outcome.Mark,
	"number":  report.Number,
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"mib":     func(n uint64) string { return report.Number(float64(n) / (1 << 20)) },
	"sum":     func(h *gauge.Histogram) gauge.Summary { return h.Summary() },
	"types":   func(m map[string]report.Traffic) []string { return slices.Sorted(maps.Keys(m)) },
	"kinds":   func(m map[string]report.Violations) []string { return slices.Sorted(maps.Keys(m)) },
}

// drawn is a scenario with its rendered plots.
type drawn struct {
	report.Scenario
	Latency template.HTML
	Plots   []template.HTML
}

// aim is a figure with an outcome, and the length of its bar.
type aim struct {
	report.Row
	Scenario string
	First    bool    // the first aim of its scenario
	Bar      float64 // percent of the widest bar; the target is at 50
}

// aims returns the figures that have an outcome. The bar's length is the value divided by the target, or the target
// divided by the value if more is better. Half of the column is the target, and the full column twice the target or
// more.
func aims(r report.Result) []aim {
	var all []aim
	for _, s := range r.Scenarios {
		first := true
		for _, row := range s.Rows {
			if row.Outcome == report.None {
				continue
			}
			a := aim{Row: row, Scenario: s.Name, First: first}
			ratio := row.Value / *row.Target
			if row.Better == report.More {
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

// OfResult renders the result as one page with its styles and plots, without scripts; its policy forbids loading
// anything. The error names the plot that cannot be rendered.
func OfResult(r report.Result) ([]byte, error) {
	view := struct {
		report.Result
		Aims        []aim
		Met, Missed int
		Drawn       []drawn
	}{Result: r, Aims: aims(r)}
	for _, a := range view.Aims {
		if a.Outcome == report.Pass {
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
	if err := resultPage.Execute(&b, view); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// side is one set of runs in a line of a comparison. From, Width and At are percent of the largest value of the line.
type side struct {
	Class, Unit       string
	Median, Low, High float64
	Runs              int
	From, Width, At   float64
}

// compared is one line of a comparison's page.
type compared struct {
	report.Compared
	Head  string // the scenario, in its first line only
	Class string
	Sides []side
}

// OfComparison renders the comparison as one page that loads nothing. The error is that of the template.
func OfComparison(c report.Comparison) ([]byte, error) {
	view := struct {
		report.Comparison
		Lines []compared
	}{Comparison: c}
	last := ""
	for _, r := range c.Rows {
		line := compared{Compared: r, Class: string(r.Result)}
		if r.Scenario != last {
			line.Head, last = r.Scenario, r.Scenario
		}
		most := max(r.BeforeRange[1], r.AfterRange[1])
		line.Sides = []side{drawnSide("before", r.Unit, r.Before, r.BeforeRange, r.BeforeRuns, most),
			drawnSide("after", r.Unit, r.After, r.AfterRange, r.AfterRuns, most)}
		view.Lines = append(view.Lines, line)
	}
	var b bytes.Buffer
	if err := comparisonPage.Execute(&b, view); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func drawnSide(class, unit string, median float64, ends [2]float64, runs int, most float64) side {
	s := side{Class: class, Unit: unit, Median: median, Low: ends[0], High: ends[1], Runs: runs}
	if most > 0 {
		s.From, s.Width, s.At = 100*max(0, ends[0])/most, 100*max(0, ends[1]-max(0, ends[0]))/most, 100*max(0, median)/most
	}
	return s
}
