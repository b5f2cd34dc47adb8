package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // the format svg
)

// palette tells lines apart for colour-blind readers too (Okabe and Ito, https://jfly.uni-koeln.de/color/).
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255},
	color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 0, 0, 255},
}

const plotWidth, plotHeight = 17 * vg.Centimeter, 7 * vg.Centimeter

// line is one curve.
type line struct {
	name   string
	points plotter.XYs
}

// figureOf draws lines into one SVG element, for pages: it refers to nothing outside of itself.
func figureOf(title, x, y string, lines []line, prepare func(*plot.Plot)) (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, false
	p.Add(plotter.NewGrid())
	for i, l := range lines {
		curve, err := plotter.NewLine(l.points)
		if err != nil {
			return "", fmt.Errorf("plot %q, line %q: %w", title, l.name, err)
		}
		curve.Color, curve.Width = palette[i%len(palette)], vg.Points(1.5)
		if i >= len(palette) {
			curve.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Add(curve)
		p.Legend.Add(l.name, curve)
	}
	if prepare != nil {
		prepare(p)
	}
	to, err := p.WriterTo(plotWidth, plotHeight, "svg")
	if err != nil {
		return "", fmt.Errorf("plot %q: %w", title, err)
	}
	return inline(to)
}

// inline takes the SVG element out of an SVG document.
func inline(w io.WriterTo) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return "", err
	}
	at := bytes.Index(b.Bytes(), []byte("<svg"))
	if at < 0 {
		return "", fmt.Errorf("the plot is no SVG")
	}
	return template.HTML(b.Bytes()[at:]), nil // made by our own plots: their texts are escaped by the canvas
}

// latencyPlot shows distributions as percentiles, the tail stretched: 90 %, 99 % and 99.9 % are equally far apart, as in
// HDR histograms' plots.
func latencyPlot(latencies []Latency) (template.HTML, error) {
	var lines []line
	for _, l := range latencies {
		if l.Histogram.Count() == 0 {
			continue
		}
		n := float64(l.Histogram.Count())
		one := line{name: l.Name}
		for x := 0.0; x <= math.Log10(max(n, 10))+1e-9; x += .05 {
			q := 1 - math.Pow(10, -x)
			one.points = append(one.points, plotter.XY{X: x, Y: ms(l, q)})
		}
		one.points = append(one.points, plotter.XY{X: math.Log10(max(n, 10)), Y: ms(l, 1)})
		lines = append(lines, one)
	}
	if len(lines) == 0 {
		return "", nil
	}
	return figureOf("Latency by percentile", "share of proxies", "ms", lines, func(p *plot.Plot) {
		p.Y.Min = 0
		p.Legend.Left = true
		p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"},
			{Value: -math.Log10(.5), Label: "50 %"}, {Value: 1, Label: "90 %"}, {Value: 2, Label: "99 %"},
			{Value: 3, Label: "99.9 %"}, {Value: 4, Label: "99.99 %"}, {Value: 5, Label: "99.999 %"}}
	})
}

func ms(l Latency, q float64) float64 { return float64(l.Histogram.Quantile(q)) / 1e6 }

// seriesPlots draws each group of series into one plot.
func seriesPlots(all []Series) ([]template.HTML, error) {
	var groups []string
	for _, s := range all {
		if len(s.Points) > 1 && !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
	}
	var plots []template.HTML
	for _, group := range groups {
		var lines []line
		unit := ""
		for _, s := range all {
			if s.Group != group || len(s.Points) < 2 {
				continue
			}
			one := line{name: s.Name}
			for _, point := range s.Points {
				one.points = append(one.points, plotter.XY{X: point[0], Y: point[1]})
			}
			lines, unit = append(lines, one), s.Unit
		}
		drawn, err := figureOf(group, "seconds", unit, lines, func(p *plot.Plot) {
			p.X.Min, p.Y.Min = 0, 0
			p.Y.Max *= 1 + .12*float64(len(lines)) // room for the legend
		})
		if err != nil {
			return nil, err
		}
		plots = append(plots, drawn)
	}
	return plots, nil
}

// targetPlot shows how far each figure that has a target is from it: 1 is the target, less is better.
func targetPlot(r Result) (template.HTML, error) {
	var names []string
	var values plotter.Values
	for _, s := range r.Scenarios {
		for _, row := range s.Rows {
			if row.Verdict == None || *row.Target == 0 || row.Value == 0 {
				continue
			}
			ratio := row.Value / *row.Target
			if row.Better == More {
				ratio = 1 / ratio
			}
			names, values = append(names, s.Name+": "+row.Name), append(values, min(ratio, 3))
		}
	}
	if len(values) == 0 {
		return "", nil
	}
	slices.Reverse(names)
	slices.Reverse(values)
	p := plot.New()
	p.Title.Text, p.X.Label.Text = "Figures by their targets (1 is the target, left of it is good, 3 is 3 or more)", "value / target"
	bars, err := plotter.NewBarChart(values, vg.Points(9))
	if err != nil {
		return "", err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, palette[0], 0
	edge, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -.5}, {X: 1, Y: float64(len(values)) - .5}})
	if err != nil {
		return "", err
	}
	edge.Color, edge.Width = palette[1], vg.Points(1.5)
	p.Add(bars, edge)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, max(1.2, slices.Max(values))
	to, err := p.WriterTo(plotWidth+6*vg.Centimeter, vg.Points(14)*vg.Length(len(values))+3*vg.Centimeter, "svg")
	if err != nil {
		return "", err
	}
	return inline(to)
}
