package gauge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Samples is a metrics page: values by name and labels, as `name{label="value",...}` with labels in alphabetical order.
// Of histograms and summaries there are `name_count` and `name_sum`.
type Samples map[string]float64

// maxPage is the largest metrics page that is read, bytes.
const maxPage = 64 << 20

// Scrape reads a page in Prometheus' text format. Errors are the client's, another status than 200, or a page that is not
// of that format.
func Scrape(ctx context.Context, client *http.Client, url string) (Samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	s, err := parse(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return s, nil
}

func parse(r io.Reader) (Samples, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	all := Samples{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := labelsOf(m)
			switch {
			case m.Gauge != nil:
				all[name+labels] = m.Gauge.GetValue()
			case m.Counter != nil:
				all[name+labels] = m.Counter.GetValue()
			case m.Untyped != nil:
				all[name+labels] = m.Untyped.GetValue()
			case m.Histogram != nil:
				all[name+"_count"+labels] = float64(m.Histogram.GetSampleCount())
				all[name+"_sum"+labels] = m.Histogram.GetSampleSum()
			case m.Summary != nil:
				all[name+"_count"+labels] = float64(m.Summary.GetSampleCount())
				all[name+"_sum"+labels] = m.Summary.GetSampleSum()
			}
		}
	}
	return all, nil
}

func labelsOf(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	var pairs []string
	for _, l := range m.GetLabel() {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, ",") + "}"
}

// By gives the values of one name by one of its labels; other labels are summed over.
func (s Samples) By(name, label string) map[string]float64 {
	values := map[string]float64{}
	for key, v := range s {
		labels, ok := strings.CutPrefix(key, name+"{")
		if !ok {
			continue
		}
		_, rest, ok := strings.Cut(","+labels, ","+label+`="`)
		if value, _, closed := strings.Cut(rest, `"`); ok && closed {
			values[value] += v
		}
	}
	return values
}
