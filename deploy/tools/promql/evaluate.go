package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scrapes is the input of -evaluate: expressions by name, and metrics pages by address. The first page of each address
// is scraped at minute 0, the next at minute 1, and so on.
type scrapes struct {
	Expressions map[string]string   `json:"expressions"`
	Pages       map[string][]string `json:"pages"`
}

// result is one element of the vector of an expression.
type result struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

// evaluate writes the values of all expressions at the last scrape.
func evaluate(in io.Reader, out io.Writer) error {
	var asked scrapes
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return err
	}
	stored, last, err := store(asked.Pages)
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{Logger: slog.New(slog.DiscardHandler),
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	all := map[string][]result{}
	for name, text := range asked.Expressions {
		query, err := engine.NewInstantQuery(context.Background(), stored, nil, text, last)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		vector, err := query.Exec(context.Background()).Vector()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all[name] = []result{}
		for _, s := range vector {
			all[name] = append(all[name], result{Labels: s.Metric.Map(), Value: fmt.Sprint(s.F)})
		}
		query.Close()
	}
	return json.NewEncoder(out).Encode(all)
}

// sample is one sample of a series.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory is a storage of scraped series, by their labels as text.
type memory map[string]*storage.SeriesEntry

// store parses pages; last is the time of the last scrape.
func store(pages map[string][]string) (m memory, last time.Time, err error) {
	samples, sets := map[string][]chunks.Sample{}, map[string]labels.Labels{}
	for instance, all := range pages {
		for i, page := range all {
			at := time.Unix(0, 0).Add(time.Duration(i) * time.Minute)
			if at.After(last) {
				last = at
			}
			p := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
			for {
				entry, err := p.Next()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					return nil, last, fmt.Errorf("page %d of %s: %w", i, instance, err)
				}
				if entry != textparse.EntrySeries {
					continue
				}
				var set labels.Labels
				p.Labels(&set)
				_, _, value := p.Series()
				b := labels.NewBuilder(set).Set("instance", instance)
				set = b.Labels()
				if before := samples[set.String()]; len(before) > 0 && before[len(before)-1].T() == at.UnixMilli() {
					return nil, last, fmt.Errorf("page %d of %s has %s twice", i, instance, set)
				}
				samples[set.String()], sets[set.String()] = append(samples[set.String()], sample{at.UnixMilli(), value}), set
			}
		}
	}
	m = memory{}
	for name, of := range samples {
		m[name] = storage.NewListSeries(sets[name], of)
	}
	return m, last, nil
}

// Querier implements storage.Queryable.
func (m memory) Querier(_, _ int64) (storage.Querier, error) { return querier{m: m}, nil }

type querier struct {
	storage.LabelQuerier
	m memory
}

// Select implements storage.Querier: the series that match all matchers, in order.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, name := range slices.Sorted(maps.Keys(q.m)) {
		set := q.m[name].Labels()
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(set.Get(m.Name)) }) {
			found = append(found, q.m[name])
		}
	}
	return &matched{all: found, at: -1}
}

func (querier) Close() error { return nil }

// matched implements storage.SeriesSet.
type matched struct {
	all []storage.Series
	at  int
}

func (f *matched) Next() bool                        { f.at++; return f.at < len(f.all) }
func (f *matched) At() storage.Series                { return f.all[f.at] }
func (f *matched) Err() error                        { return nil }
func (f *matched) Warnings() annotations.Annotations { return nil }
