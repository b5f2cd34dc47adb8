package istiometrics

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

// envoyPrefix is the prefix of the names of statistics on Envoy's page.
const envoyPrefix = "envoy_"

// Each line of Istio's metrics on Envoy's page begins with the text in sample or the text in comment.
var (
	sample  = []byte(envoyPrefix + Prefix)
	comment = []byte("# TYPE " + envoyPrefix + Prefix)
)

// Page is a writer that translates Envoy's page of metrics, in Prometheus' format, and writes the result to another
// writer. Istio's metrics get Istio's names and labels. Other lines stay unchanged. Labels that do not parse stay
// unchanged too. A Page translates one page, and is not safe for concurrent use.
type Page struct {
	to  io.Writer
	own Workload
	out []byte // memory of the translated lines, reused
	// sums maps the text of a series to its value. It contains the series from which labels are left out. Such a series
	// may be the sum of several series of Envoy. The field names has the same texts in order of occurrence. All series
	// are of one metric, because Envoy's page lists a metric's series together.
	sums  map[string]float64
	names []string
	// The field counted has Envoy's labels of the last series, and translated has Istio's labels of this series, both
	// without the label le. The series of a histogram have these labels in common.
	counted, translated string
	fewer               bool // the translation leaves labels out
}

// NewPage returns a Page that writes the translation to target. The argument own is the workload of the proxy whose
// page is translated.
func NewPage(target io.Writer, own Workload) *Page { return &Page{to: target, own: own} }

// Write translates lines and writes them. The sums of a metric are written later, at the end of the metric. The
// argument must consist of whole lines, and is not retained. The result is len(lines), or 0 with the error of the
// underlying writer.
func (p *Page) Write(lines []byte) (int, error) {
	p.out = p.out[:0]
	for rest := lines; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		rest = after
		switch {
		case bytes.HasPrefix(line, sample):
			p.series(string(line[len(envoyPrefix):]))
		case bytes.HasPrefix(line, comment):
			p.writeSums()
			p.translated = "" // the translation depends on the metric
			p.out = append(append(p.out, "# TYPE "...), line[len("# TYPE "+envoyPrefix):]...)
			p.out = append(p.out, '\n')
		default:
			p.writeSums()
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

// Flush writes the sums of the last metric. The caller must call it at the end of the page. It returns the error of the
// underlying writer.
func (p *Page) Flush() error {
	p.out = p.out[:0]
	if p.writeSums(); len(p.out) == 0 {
		return nil
	}
	_, err := p.to.Write(p.out)
	return err
}

// writeSums appends the sums of a metric to out, and clears them.
func (p *Page) writeSums() {
	for _, name := range p.names {
		p.out = append(append(p.out, name...), ' ')
		p.out = append(strconv.AppendFloat(p.out, p.sums[name], 'f', -1, 64), '\n')
	}
	p.names = p.names[:0]
	clear(p.sums)
}

// series translates one line METRIC{LABELS} VALUE, from which envoyPrefix is removed. A line that does not parse is not
// translated.
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
	if labels != p.counted || p.translated == "" {
		counted, ok := parse(labels)
		if !ok {
			p.out = append(append(p.out, line...), '\n')
			return
		}
		var out []label
		out, p.fewer = p.own.istioLabels(metric, counted)
		p.counted, p.translated = labels, text(out)
	}
	name := metric + "{" + p.translated + bucket + "}"
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

// parse parses labels in Envoy's notation: NAME="VALUE", separated by commas. Backslashes, quotation marks and newlines
// in values are escaped. The result ok is false if the text does not parse.
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

// escaped escapes the values of labels.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// text returns labels in Prometheus' notation.
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
