package gauge

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Buckets are the cumulative counts of a histogram of a metrics page by upper bound.
type Buckets map[float64]float64

// Buckets returns the sums over all histograms of a name whose labels include some, each as `name="value"`.
func (s Samples) Buckets(histogram string, labels ...string) Buckets {
	some := Samples{}
	for key, v := range s {
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(key, l) }) {
			some[key] = v
		}
	}
	all := Buckets{}
	for le, n := range some.By(histogram+"_bucket", "le") {
		if bound, err := strconv.ParseFloat(le, 64); err == nil {
			all[bound] = n
		}
	}
	return all
}

// Since returns what was observed since an earlier page.
func (b Buckets) Since(before Buckets) Buckets {
	added := Buckets{}
	for bound, n := range b {
		added[bound] = n - before[bound]
	}
	return added
}

// Longest returns the upper bound of the highest bucket that has observations, or 0 without any. It is +Inf if an
// observation is above all other bounds.
func (b Buckets) Longest() float64 { return b.Quantile(1) }

// Quantile returns the upper bound of the bucket that has a quantile, or 0 without observations.
func (b Buckets) Quantile(q float64) float64 {
	bounds := slices.Sorted(maps.Keys(b))
	if len(bounds) == 0 {
		return 0
	}
	count := b[bounds[len(bounds)-1]]
	if count == 0 {
		return 0
	}
	for _, bound := range bounds {
		if b[bound] >= q*count {
			return bound
		}
	}
	return math.Inf(1)
}

// Within returns the share of the observations up to the bound of a bucket, or 1 without observations.
func (b Buckets) Within(bound float64) float64 {
	bounds := slices.Sorted(maps.Keys(b))
	if len(bounds) == 0 || b[bounds[len(bounds)-1]] == 0 {
		return 1
	}
	return b[bound] / b[bounds[len(bounds)-1]]
}
