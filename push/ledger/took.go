package ledger

import (
	"math"
	"sync/atomic"
	"time"
)

// numBuckets is the number of buckets of a histogram. Bucket i ends at 1 ms * 2^(i/2). The last one ends at about 12
// minutes, and also contains longer times.
const numBuckets = 40

// end returns the upper limit of a bucket.
func end(i int) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Pow(2, float64(i)/2))
}

// ends are the upper limits of all buckets.
var ends = func() (all [numBuckets]time.Duration) {
	for i := range all {
		all[i] = end(i)
	}
	return all
}()

// bucket returns the bucket of a time.
func bucket(d time.Duration) int {
	for i, e := range ends {
		if d <= e {
			return i
		}
	}
	return numBuckets - 1
}

// histogram counts the times of acknowledgements.
type histogram struct {
	counts  [numBuckets]atomic.Uint32
	longest atomic.Int64 // nanoseconds
}

// add counts a time. The longest time is exact.
func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	for was := h.longest.Load(); int64(d) > was && !h.longest.CompareAndSwap(was, int64(d)); was = h.longest.Load() {
	}
	h.counts[bucket(d)].Add(1)
}

// read returns the present content.
func (h *histogram) read() (t Took) {
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			for len(t.Counts) <= i {
				t.Counts = append(t.Counts, 0)
			}
			t.Counts[i] = int(n)
		}
	}
	t.Longest = time.Duration(h.longest.Load())
	return t
}

// Took is a histogram of the times from the commit of a change to its acknowledgements. Histograms of several replicas
// can be added (Counts.Plus).
type Took struct {
	// Counts is the number of acknowledgements by bucket, without trailing zeros. Bucket i ends at 1 ms * 2^(i/2).
	// There are at most 40 buckets, and the last one also contains longer times.
	Counts  []int         `json:"counts,omitempty"`
	Longest time.Duration `json:"longest_ns,omitempty"` // the longest time, exact; 0 without acknowledgements
}

// total returns the number of acknowledgements.
func (t Took) total() (n int) {
	for _, c := range t.Counts {
		n += c
	}
	return n
}

// plus returns the sum of two histograms.
func (t Took) plus(o Took) Took {
	if len(t.Counts) < len(o.Counts) {
		t, o = o, t
	}
	sum := Took{Counts: append([]int(nil), t.Counts...), Longest: max(t.Longest, o.Longest)}
	for i, n := range o.Counts {
		sum.Counts[i] += n
	}
	return sum
}

// until returns the time within which a share of the clients had acknowledged. The parameter clients is the number of
// clients. The result is false if a smaller share of the clients has acknowledged, or if share or clients is 0. The
// time is the end of a bucket, at most 41 % too long, or the exact longest time.
func (t Took) until(share float64, clients int) (time.Duration, bool) {
	want := int(math.Ceil(share * float64(clients)))
	if want <= 0 || t.total() < want {
		return 0, false
	}
	seen := 0
	for i, n := range t.Counts {
		if seen += n; seen >= want && seen < t.total() && i < numBuckets {
			return min(ends[i], t.Longest), true
		}
	}
	return t.Longest, true
}
