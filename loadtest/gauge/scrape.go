package gauge

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

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

// Sum is the total over all labels of one name, and whether there is any.
func (s Samples) Sum(name string) (float64, bool) {
	total, found := 0.0, false
	for key, v := range s {
		if key == name || strings.HasPrefix(key, name+"{") {
			total, found = total+v, true
		}
	}
	return total, found
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

// Target is one server to be measured from outside.
type Target struct {
	Name string `json:"name"`
	// PID is its process; 0: not on this machine. A process with an embedded etcd counts with it; etcd of its own is a
	// Target of its own.
	PID int `json:"pid,omitempty"`
	// Metrics is the URL of its metrics page; empty: it has none.
	Metrics string `json:"metrics,omitempty"`
	// Keep are the names of metrics to keep; nil: those of Navarch's and istiod's proxies, views and revision.
	Keep []string `json:"keep,omitempty"`
}

// usual are the metrics that a Reading keeps if nobody says which.
var usual = []string{"navarch_proxies", "navarch_views", "navarch_revision", "navarch_pooled", "pilot_xds", "pilot_xds_pushes",
	"pilot_total_xds_rejects", "go_goroutines", "go_memstats_heap_inuse_bytes"}

// Reading is one target at one moment. What could not be read is absent, and Problem says why.
type Reading struct {
	Target  string    `json:"target"`
	At      time.Time `json:"at"`
	Process *Process  `json:"process,omitempty"`
	Metrics Samples   `json:"metrics,omitempty"`
	Problem string    `json:"problem,omitempty"`
}

// Read measures a target now.
func (t Target) Read(ctx context.Context, client *http.Client) Reading {
	r := Reading{Target: t.Name, At: time.Now()}
	if t.PID != 0 {
		if p, err := ReadProcess(t.PID); err != nil {
			r.Problem = err.Error()
		} else {
			r.Process = &p
		}
	}
	if t.Metrics == "" {
		return r
	}
	page, err := Scrape(ctx, client, t.Metrics)
	if err != nil {
		r.Problem = strings.Join([]string{r.Problem, err.Error()}, " ")
		return r
	}
	keep := t.Keep
	if keep == nil {
		keep = usual
	}
	maps.DeleteFunc(page, func(key string, _ float64) bool {
		name, _, _ := strings.Cut(key, "{")
		return !slices.Contains(keep, name)
	})
	r.Metrics = page
	return r
}

// Watch reads all targets at each interval until the context ends, and gives the readings away.
func Watch(ctx context.Context, every time.Duration, targets []Target, give func([]Reading)) {
	client := &http.Client{Timeout: every}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var all []Reading
		for _, t := range targets {
			all = append(all, t.Read(ctx, client))
		}
		if ctx.Err() != nil {
			return
		}
		give(all)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
