package gauge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"
)

// Samples is a metrics page: values by name and labels, as `name{label="value",...}` with labels in alphabetical order.
// Of histograms and summaries there are `name_count` and `name_sum`, and of histograms `name_bucket` by upper bound
// (le).
type Samples map[string]float64

// maxPage is the limit of a metrics page in bytes.
const maxPage = 64 << 20

// Scrape reads a page in Prometheus' text format. Errors: a failed request, a status other than 200, or a page of
// another format.
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
				for _, b := range m.Histogram.GetBucket() {
					bound := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
					le := &dto.LabelPair{Name: proto.String("le"), Value: &bound}
					all[name+"_bucket"+labelsOf(m, le)] = float64(b.GetCumulativeCount())
				}
			case m.Summary != nil:
				all[name+"_count"+labels] = float64(m.Summary.GetSampleCount())
				all[name+"_sum"+labels] = m.Summary.GetSampleSum()
			}
		}
	}
	return all, nil
}

func labelsOf(m *dto.Metric, more ...*dto.LabelPair) string {
	if len(m.GetLabel())+len(more) == 0 {
		return ""
	}
	var pairs []string
	for _, l := range slices.Concat(m.GetLabel(), more) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(pairs)
	return "{" + strings.Join(pairs, ",") + "}"
}

// By returns the sums of the samples with one name, by the value of one label.
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
