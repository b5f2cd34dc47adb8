package istiometrics

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

// envoyPrefix is what Envoy puts before the names of statistics on its page.
const envoyPrefix = "envoy_"

var (
	sample  = []byte(envoyPrefix + Prefix)
	comment = []byte("# TYPE " + envoyPrefix + Prefix)
)

// Page writes Envoy's page of metrics with Istio's metrics under Istio's names and with Istio's labels; every other line is as it came.
type Page struct {
	to  io.Writer
	own Workload
	out []byte
	// Envoy's series that are one without the labels that are left out, by their text, in the order in which they came. Those of one metric: Envoy's
	// page has all series of a metric one after the other.
	sums  map[string]float64
	names []string
	// of the last series: those of a histogram differ by their last label alone.
	counted, spelled string
	fewer            bool
}

// NewPage is a page of the proxy of this workload.
func NewPage(to io.Writer, own Workload) *Page { return &Page{to: to, own: own} }

// Write takes whole lines. The error is the writer's.
func (p *Page) Write(lines []byte) (int, error) {
	p.out = p.out[:0]
	for rest := lines; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		rest = after
		switch {
		case bytes.HasPrefix(line, sample):
			p.series(string(line[len(envoyPrefix):]))
		case bytes.HasPrefix(line, comment):
			p.end()
			p.spelled = "" // labels mean other things for another metric
			p.out = append(append(p.out, "# TYPE "...), line[len("# TYPE "+envoyPrefix):]...)
			p.out = append(p.out, '\n')
		default:
			p.end()
			p.out = append(append(p.out, line...), '\n')
		}
	}
	if len(p.out) == 0 {
		return len(lines), nil
	}
	if _, err := p.to.Write(p.out); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// Flush writes what waits for more of its metric: to be called when the page is at its end. Errors are those of the writer behind it.
func (p *Page) Flush() error {
	p.out = p.out[:0]
	if p.end(); len(p.out) == 0 {
		return nil
	}
	_, err := p.to.Write(p.out)
	return err
}

// end writes the sums of a metric.
func (p *Page) end() {
	for _, name := range p.names {
		p.out = append(append(p.out, name...), ' ')
		p.out = append(strconv.AppendFloat(p.out, p.sums[name], 'f', -1, 64), '\n')
	}
	p.names = p.names[:0]
	clear(p.sums)
}

// series spells one line, METRIC{LABELS} VALUE. One that is not understood stays as it is.
func (p *Page) series(line string) {
	open, shut := strings.IndexByte(line, '{'), strings.LastIndexByte(line, '}')
	if open < 0 || shut < open {
		p.out = append(append(p.out, line...), '\n')
		return
	}
	metric, labels, value := line[:open], line[open+1:shut], strings.TrimPrefix(line[shut+1:], " ")
	le := strings.LastIndex(labels, `,le="`)
	bucket := ""
	if le >= 0 && strings.HasSuffix(metric, "_bucket") {
		labels, bucket = labels[:le], labels[le:]
	}
	if labels != p.counted || p.spelled == "" {
		counted, ok := parse(labels)
		if !ok {
			p.out = append(append(p.out, line...), '\n')
			return
		}
		var out []label
		out, p.fewer = p.own.spell(metric, counted)
		p.counted, p.spelled = labels, text(out)
	}
	name := metric + "{" + p.spelled + bucket + "}"
	number, err := strconv.ParseFloat(value, 64)
	if !p.fewer || err != nil {
		p.out = append(append(p.out, name...), ' ')
		p.out = append(append(p.out, value...), '\n')
		return
	}
	if p.sums == nil {
		p.sums = map[string]float64{}
	}
	if _, there := p.sums[name]; !there {
		p.names = append(p.names, name)
	}
	p.sums[name] += number
}

// parse reads labels as Envoy writes them: NAME="VALUE" with commas between; in values \, " and the end of a line are escaped.
func parse(text string) (out []label, ok bool) {
	for text != "" {
		name, rest, found := strings.Cut(text, `="`)
		if !found {
			return nil, false
		}
		var value strings.Builder
		at := 0
		for ; at < len(rest) && rest[at] != '"'; at++ {
			if rest[at] == '\\' && at+1 < len(rest) {
				if at++; rest[at] == 'n' {
					value.WriteByte('\n')
					continue
				}
			}
			value.WriteByte(rest[at])
		}
		if at == len(rest) {
			return nil, false
		}
		out = append(out, label{name, value.String()})
		text = strings.TrimPrefix(rest[at+1:], ",")
	}
	return out, true
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// text is labels as Prometheus reads them.
func text(labels []label) string {
	var b strings.Builder
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.name + `="` + escaped.Replace(l.value) + `"`)
	}
	return b.String()
}
