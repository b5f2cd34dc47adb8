// Package gauge measures a control plane from outside: histograms that can be merged across processes, memory and CPU
// time of a process by the kernel's counters, and the values of a metrics page. Every result is a type with a JSON
// form.
//
// Owns: the histograms that it creates. Reads: /proc, HTTP pages. Never: imports the measured program.
package gauge

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"
)

// subBits is the precision of a Histogram: the width of a bucket is at most 1/128 (0.8 %) of its values, as in HDR
// histograms with two significant digits (http://hdrhistogram.org).
const subBits = 7

// Histogram counts durations in buckets of constant relative width, from 1 ns on. Minimum, maximum and sum are exact.
// The zero Histogram is empty and ready for use, by any goroutine; a nil Histogram is empty.
//
// It replaces github.com/HdrHistogram/hdrhistogram-go, whose precision is equal but which has three limits. It knows
// the largest value, which is the figure "until the last one", only by its bucket. One goroutine may use it. Values
// beyond a range that was chosen at creation are lost.
type Histogram struct {
	mu       sync.Mutex
	counts   []uint64
	count    uint64
	sum      float64 // ns
	min, max time.Duration
}

// Summary is the part of a Histogram that reports show, in milliseconds.
type Summary struct {
	Count uint64  `json:"count"`
	Min   float64 `json:"min_ms"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	// Last is the largest value, for example the time until the last proxy of a fleet.
	Last float64 `json:"last_ms"`
}

// Record counts one duration; a negative one counts as 0.
func (h *Histogram) Record(d time.Duration) { h.record(d, 1) }

func (h *Histogram) record(d time.Duration, n uint64) {
	d = max(d, 0)
	i := bucket(uint64(d))
	h.mu.Lock()
	defer h.mu.Unlock()
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	if h.count == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.counts[i] += n
	h.count += n
	h.sum += float64(d) * float64(n)
}

// bucket returns the index of a value: the value itself below 256, then 128 buckets for each power of two.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// upper returns the largest value of a bucket.
func upper(i int) uint64 {
	if i < 2<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i-shift<<subBits)+1)<<shift - 1
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	if o == nil {
		return
	}
	o = o.Clone()
	if o.count == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(o.counts)-len(h.counts))...)
	}
	for i, n := range o.counts {
		h.counts[i] += n
	}
	if h.count == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.count += o.count
	h.sum += o.sum
}

// Clone returns a copy.
func (h *Histogram) Clone() *Histogram {
	c := &Histogram{}
	if h == nil {
		return c
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.counts = append(c.counts, h.counts...)
	c.count, c.sum, c.min, c.max = h.count, h.sum, h.min, h.max
	return c
}

// Count returns the number of recorded durations.
func (h *Histogram) Count() uint64 { return h.Clone().count }

// Max returns the largest recorded duration, exactly; 0 for an empty histogram.
func (h *Histogram) Max() time.Duration { return h.Clone().max }

// Quantile returns the duration that the share q (0 to 1) of the records does not exceed. The result is at most 0.8 %
// too large; 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration { return h.Clone().quantile(q) }

func (h *Histogram) quantile(q float64) time.Duration {
	want := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.count)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= max(want, 1) {
			return min(max(time.Duration(upper(i)), h.min), h.max)
		}
	}
	return h.max
}

// Summary returns count, minimum, mean, maximum and the usual quantiles.
func (h *Histogram) Summary() Summary {
	c := h.Clone()
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	s := Summary{Count: c.count, Min: ms(c.min), P50: ms(c.quantile(.5)), P90: ms(c.quantile(.9)),
		P99: ms(c.quantile(.99)), Last: ms(c.max)}
	if c.count > 0 {
		s.Mean = c.sum / float64(c.count) / 1e6
	}
	return s
}

// String returns the summary as one line of text.
func (s Summary) String() string {
	return fmt.Sprintf("n %d  p50 %.1f ms  p90 %.1f ms  p99 %.1f ms  last %.1f ms", s.Count, s.P50, s.P90, s.P99, s.Last)
}

// wire is the JSON form of a Histogram. Buckets are [index, count] pairs of the buckets that are not empty; index i
// holds the values v (ns) with i = shift*128 + (v>>shift), shift = max(bits(v)-8, 0).
type wire struct {
	Summary
	MinNS   int64       `json:"min_ns"`
	MaxNS   int64       `json:"max_ns"`
	SumNS   float64     `json:"sum_ns"`
	Buckets [][2]uint64 `json:"buckets"`
}

// MarshalJSON returns the summary for people and the buckets for merging. The error is nil.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	c := h.Clone()
	w := wire{Summary: c.Summary(), MinNS: int64(c.min), MaxNS: int64(c.max), SumNS: c.sum, Buckets: [][2]uint64{}}
	for i, n := range c.counts {
		if n > 0 {
			w.Buckets = append(w.Buckets, [2]uint64{uint64(i), n})
		}
	}
	return json.Marshal(w)
}

// lastBucket is the index of the largest duration's bucket.
var lastBucket = bucket(math.MaxInt64)

// UnmarshalJSON parses the form of MarshalJSON. The error names a bucket that is not possible, or is that of the JSON.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("histogram: %w", err)
	}
	var counts []uint64
	var count uint64
	for _, pair := range w.Buckets {
		if pair[0] > uint64(lastBucket) {
			return fmt.Errorf("histogram: bucket %d: the last one is %d", pair[0], lastBucket)
		}
		if i := int(pair[0]); i >= len(counts) {
			counts = append(counts, make([]uint64, i+1-len(counts))...)
		}
		counts[pair[0]] += pair[1]
		count += pair[1]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts, h.count, h.sum, h.min, h.max = counts, count, w.SumNS, time.Duration(w.MinNS), time.Duration(w.MaxNS)
	return nil
}
