package gauge

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestQuantiles compares with the sorted list of the recorded values: at most 0.8 % too large, never too small.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 10, 1000} {
		var h Histogram
		var all []time.Duration
		for range n {
			d := time.Duration(math.Exp(rng.Float64() * 25))
			all = append(all, d)
			h.Record(d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, .5, .9, .99, .999, 1} {
			want := all[max(int(math.Ceil(q*float64(n)))-1, 0)]
			if got := h.Quantile(q); got < want || float64(got) > float64(want)*(1+1./128)+1 {
				t.Errorf("n %d q %v: %v, want %v", n, q, got, want)
			}
		}
		if h.Max() != all[n-1] || h.Count() != uint64(n) {
			t.Errorf("max %v of %v, count %d", h.Max(), all[n-1], h.Count())
		}
	}
}

// Every value is in the bucket whose upper end is the first not below it; all borders are tested.
func TestBuckets(t *testing.T) {
	values := []uint64{0, 1, math.MaxInt64}
	for shift := range 63 {
		for _, d := range []int64{-1, 0, 1} {
			values = append(values, uint64(max(int64(1)<<shift+d, 0)))
		}
	}
	for _, v := range values {
		i := bucket(v)
		if v > upper(i) || i > 0 && v <= upper(i-1) {
			t.Errorf("%d is in bucket %d: %d to %d", v, i, upper(i-1)+1, upper(i))
		}
	}
}

func TestMergeIsRecordingTogether(t *testing.T) {
	var a, b, both, empty Histogram
	for i := range 1000 {
		d := time.Duration(i*i+5) * time.Microsecond
		both.Record(d)
		if i%3 == 0 {
			a.Record(d)
		} else {
			b.Record(d)
		}
	}
	text, err := json.Marshal(&b) // as another process would send it
	if err != nil {
		t.Fatal(err)
	}
	var read Histogram
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	a.Merge(&read)
	a.Merge(&empty)
	a.Merge(nil)
	if a.Summary() != both.Summary() {
		t.Errorf("%v, want %v", a.Summary(), both.Summary())
	}
	empty.Merge(&both)
	if empty.Summary() != both.Summary() {
		t.Errorf("into an empty one: %v, want %v", empty.Summary(), both.Summary())
	}
}

func TestBadHistograms(t *testing.T) {
	for _, text := range []string{`{"buckets":[[99999999,1]]}`, `{"buckets":[[-1,1]]}`, `[]`, `{"buckets":[[1]]`} {
		var h Histogram
		if err := json.Unmarshal([]byte(text), &h); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func TestParseStat(t *testing.T) {
	line := "12 (a) (b) c) S 1 12 12 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 7 0 99 1 2 3"
	var p Process
	if err := p.parseStat([]byte(line)); err != nil {
		t.Fatal(err)
	}
	if p.Name != "a) (b) c" || p.User != 1500*time.Millisecond || p.System != 500*time.Millisecond || p.Threads != 7 ||
		p.CPU() != 2*time.Second {
		t.Errorf("%+v", p)
	}
	for _, bad := range []string{"", "12 a S", "12 (a) S 1 2", "12 (a) S 1 12 12 0 -1 4194560 9 0 0 0 x 50 0 0 20 0 7 0 99 1 2 3"} {
		if err := p.parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestParseRollup(t *testing.T) {
	var p Process
	text := "55-7f ---p 00 00:00 0 [rollup]\nRss: 100 kB\nPss: 3 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nAnonymous: 50 kB\n"
	if err := p.parseRollup([]byte(text)); err != nil || p.RSS != 100<<10 || p.Private != 3<<10 || p.Anonymous != 50<<10 {
		t.Errorf("%+v %v", p, err)
	}
	if err := p.parseRollup([]byte("nothing")); err == nil {
		t.Error("a page without Rss was read")
	}
}

// TestReadProcess measures this process: allocated memory and used CPU time must be visible.
func TestReadProcess(t *testing.T) {
	before, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	first, err := Glance(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	big, err := syscall.Mmap(-1, 0, 64<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(big) }()
	for i := 0; i < len(big); i += 4096 {
		big[i] = 1
	}
	// CPU time of this thread, as other programs use the clock's.
	for until := burnt(t) + 60*time.Millisecond; burnt(t) < until; {
		_ = bytes.Count(big, []byte{2})
	}
	after, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after.RSS < before.RSS+60<<20 || after.CPU()-before.CPU() < 20*time.Millisecond || !after.At.After(before.At) || after.Files == 0 || after.Threads == 0 {
		t.Errorf("%+v, before %+v", after, before)
	}
	last, err := Glance(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := last.RSS - first.RSS; grown < 60<<20 || grown > 200<<20 || last.CPU()-first.CPU() < 20*time.Millisecond || last.Threads == 0 || last.Files != 0 {
		t.Errorf("at a glance: %+v, before %+v", last, first)
	}
	if _, err := Glance(1 << 30); err == nil {
		t.Error("a process that is not there was measured")
	}
}

// ReadCPU returns user and system time as ReadProcess does, and an error for a process that does not exist.
func TestReadCPU(t *testing.T) {
	for until := burnt(t) + 60*time.Millisecond; burnt(t) < until; {
		_ = bytes.Count([]byte(page), []byte("x"))
	}
	before, err := ReadProcess(os.Getpid())
	for err == nil && before.System < 30*time.Millisecond { // the kernel sums up pages
		before, err = ReadProcess(os.Getpid())
	}
	if err != nil {
		t.Fatal(err)
	}
	used, err := ReadCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if used < before.CPU() || used > after.CPU() || used < 60*time.Millisecond {
		t.Errorf("%v, between %v and %v", used, before.CPU(), after.CPU())
	}
	if used, err := ReadCPU(1 << 30); err == nil || used != 0 {
		t.Errorf("a process that is not there: %v, %v", used, err)
	}
}

// burnt returns the CPU time of this process by the kernel's counters.
func burnt(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const page = `# TYPE navarch_views gauge
navarch_views{layer="scope"} 50
navarch_views{layer="workload"} 2000
# TYPE navarch_proxies gauge
navarch_proxies 2000
# TYPE pilot_xds_pushes counter
pilot_xds_pushes{type="cds"} 3
# TYPE pilot_proxy_convergence_time histogram
pilot_proxy_convergence_time_bucket{le="+Inf"} 4
pilot_proxy_convergence_time_sum 0.5
pilot_proxy_convergence_time_count 4
# TYPE reviews histogram
reviews_bucket{rejected="false",type="admit",le="0.5"} 90
reviews_bucket{rejected="false",type="admit",le="1"} 99
reviews_bucket{rejected="false",type="admit",le="+Inf"} 99
reviews_sum{rejected="false",type="admit"} 30
reviews_count{rejected="false",type="admit"} 99
reviews_bucket{rejected="false",type="validating",le="0.5"} 1
reviews_bucket{rejected="false",type="validating",le="1"} 1
reviews_bucket{rejected="false",type="validating",le="+Inf"} 1
reviews_sum{rejected="false",type="validating"} 0.1
reviews_count{rejected="false",type="validating"} 1
reviews_bucket{rejected="true",type="admit",le="0.5"} 0
reviews_bucket{rejected="true",type="admit",le="1"} 0
reviews_bucket{rejected="true",type="admit",le="+Inf"} 7
reviews_sum{rejected="true",type="admit"} 70
reviews_count{rejected="true",type="admit"} 7
`

func TestScrape(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = w.Write([]byte(page))
		case "/bad":
			_, _ = w.Write([]byte("what} is this\n"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	s, err := Scrape(t.Context(), srv.Client(), srv.URL+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if views := s.By("navarch_views", "layer"); views["scope"] != 50 || views["workload"] != 2000 {
		t.Errorf("%v", views)
	}
	if s["pilot_proxy_convergence_time_count"] != 4 || s[`pilot_xds_pushes{type="cds"}`] != 3 {
		t.Errorf("%v", s)
	}
	good, all := s.Buckets("reviews", `rejected="false"`), s.Buckets("reviews")
	if good.Quantile(.9) != .5 || good.Quantile(.99) != 1 || good.Longest() != 1 || good.Within(.5) != .91 {
		t.Errorf("good: %v", good)
	}
	if !math.IsInf(all.Longest(), 1) || all.Since(good).Quantile(.5) != all.Longest() || all.Since(good).Within(1) != 0 {
		t.Errorf("all: %v", all)
	}
	if none := all.Since(all); none.Longest() != 0 || none.Within(.5) != 1 || s.Buckets("other").Longest() != 0 {
		t.Errorf("none: %v", none)
	}
	for path, says := range map[string]string{"/bad": "/bad", "/none": "404"} {
		if _, err := Scrape(t.Context(), srv.Client(), srv.URL+path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzHistogram(f *testing.F) {
	f.Add([]byte(`{"buckets":[[1,2],[300,1]],"max_ns":5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		if json.Unmarshal(b, &h) == nil {
			h.Summary()
			h.Record(1)
		}
	})
}
