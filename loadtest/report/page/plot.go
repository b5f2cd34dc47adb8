package page

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // the format svg

	"navarch.io/navarch/loadtest/report"
)

// palette has colours that colour-blind readers can distinguish (Okabe and Ito, https://jfly.uni-koeln.de/color/).
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255},
	color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 0, 0, 255},
}

const plotWidth, plotHeight = 17 * vg.Centimeter, 7.5 * vg.Centimeter

// faint is the colour of grid lines.
var faint = color.Gray{225}

// init sets the font of all plots. Browsers display Arial in its place, which has the same widths.
func init() { plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"} }

// ticks returns the default ticks with labels in the form of the page's numbers: 75000 instead of 75000.00.
func ticks(low, high float64) []plot.Tick {
	all := plot.DefaultTicks{}.Ticks(low, high)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = strconv.FormatFloat(all[i].Value, 'g', 6, 64)
		}
	}
	return all
}

// line is one curve of a plot.
type line struct {
	name   string
	points plotter.XYs
}

// figureOf renders lines as one SVG element without external references. The error names the plot and the line.
func figureOf(title, x, y string, lines []line, prepare func(*plot.Plot)) (template.HTML, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding, p.X.Padding, p.Y.Padding = vg.Points(6), vg.Points(2), vg.Points(2)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	// The legend is on the left, because a reader's font may be wider than ours: names then extend into the plot instead
	// of over its edge.
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.ThumbnailWidth = true, true, vg.Points(6), vg.Points(14)
	p.Legend.Padding = vg.Points(2)
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

// inline returns the SVG element of an SVG document.
func inline(w io.WriterTo) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return "", err
	}
	at := bytes.Index(b.Bytes(), []byte("<svg"))
	if at < 0 {
		return "", fmt.Errorf("the plot is no SVG")
	}
	// Arial and Helvetica have the widths of the typeface, which may be absent.
	text := strings.ReplaceAll(string(b.Bytes()[at:]), "Liberation Sans", "Liberation Sans, Arial, Helvetica, sans-serif")
	return template.HTML(text), nil // our own plots are safe: the canvas escapes their texts
}

// latencyPlot plots distributions by percentile on a logarithmic scale of the tail: 90 %, 99 % and 99.9 % are
// equidistant, as in plots of HDR histograms.
func latencyPlot(latencies []report.Latency) (template.HTML, error) {
	var lines []line
	top := 0.0
	for _, l := range latencies {
		top = max(top, quantile(l, 1))
	}
	unit, by := "ms", 1.0
	if top >= 10e3 {
		unit, by = "s", 1e-3
	}
	for _, l := range latencies {
		if l.Histogram.Count() == 0 {
			continue
		}
		n := float64(l.Histogram.Count())
		one := line{name: l.Name}
		for x := 0.0; x <= math.Log10(max(n, 10))+1e-9; x += .05 {
			one.points = append(one.points, plotter.XY{X: x, Y: by * quantile(l, 1-math.Pow(10, -x))})
		}
		one.points = append(one.points, plotter.XY{X: math.Log10(max(n, 10)), Y: by * quantile(l, 1)})
		lines = append(lines, one)
	}
	if len(lines) == 0 {
		return "", nil
	}
	return figureOf("Latency by percentile", "share of all", unit, lines, func(p *plot.Plot) {
		p.Y.Min = 0
		p.Y.Max *= 1 + .1*float64(len(lines)) // space for the legend
		p.X.Max += .3                         // space for the last percentile's label
		p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"},
			{Value: -math.Log10(.5), Label: "50 %"}, {Value: 1, Label: "90 %"}, {Value: 2, Label: "99 %"},
			{Value: 3, Label: "99.9 %"}, {Value: 4, Label: "99.99 %"}, {Value: 5, Label: "99.999 %"}}
	})
}

// quantile returns a quantile in milliseconds.
func quantile(l report.Latency, q float64) float64 {
	if l.Histogram.Count() == 0 {
		return 0
	}
	return float64(l.Histogram.Quantile(q)) / 1e6
}

// seriesPlots renders one plot for each group of series.
func seriesPlots(all []report.Series) ([]template.HTML, error) {
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
			p.Y.Max *= 1 + .1*float64(len(lines)) // space for the legend
		})
		if err != nil {
			return nil, err
		}
		plots = append(plots, drawn)
	}
	return plots, nil
}
