package report

import (
	"bytes"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

func ptr(v float64) *float64 { return &v }

// example returns a result with a value in every field.
func example() Result {
	h := &gauge.Histogram{}
	for i := range 1000 {
		h.Record(time.Duration(i) * time.Millisecond)
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return Result{Version: Version, Label: "navarch", Started: start, Seconds: 12.5, Command: []string{"run", "endpoint"},
		Machine: Machine{CPU: "some CPU", Cores: 2, Memory: 8 << 30, Kernel: "6.1", Go: "go1.26", Load: "0.1 0.2 0.3"},
		Scenarios: []Scenario{{
			Name: "endpoint", Title: "one endpoint changes", World: "world-a", Scale: 1, Proxies: 1000, Replicas: 1, MTLS: true, Started: start, Seconds: 3,
			Rows: []Row{
				Row{Name: "last", Unit: "ms", Value: 71.23456, Target: ptr(80), Better: Less, Compare: "istiod 272 ms"}.Judge(1),
				Row{Name: "CPU", Unit: "s", Value: .3, Target: ptr(.1), Better: Less}.Judge(1),
				Row{Name: "rate", Unit: "1/s", Value: 25000, Target: ptr(20000), Better: More}.Judge(1),
				Row{Name: "bytes", Unit: "MB", Value: 12, Better: Less}.Judge(1),
			},
			Latencies:  []Latency{{Name: "commit to ACK", Histogram: h}, {Name: "nothing", Histogram: &gauge.Histogram{}}},
			Series:     []Series{{Name: "replica 1", Group: "memory", Unit: "MiB", Points: [][2]float64{{0, 10}, {1, 20}}}, {Name: "one point", Group: "cpu", Unit: "%", Points: [][2]float64{{0, 1}}}},
			Processes:  []Process{{Name: "replica-1", CPU: 1.5, PeakRSS: 3 << 20, LastRSS: 2 << 20}},
			Traffic:    map[string]Traffic{"EDS": {Responses: 1, Resources: 2, Removed: 3, BytesIn: 4, Requests: 5, BytesOut: 6, Nacks: 7}},
			Violations: map[string]Violations{"duplicate": {Count: 2, Examples: []string{"<script>alert(1)</script>"}}},
			Ended:      map[string]uint64{"io": 1}, Notes: []string{"a note"}, Failed: "<b>it broke</b>",
		}}}
}

func TestExampleIsComplete(t *testing.T) { filled(t, "Result", reflect.ValueOf(example())) }

// filled fails for a zero field, so that the other tests speak of every field there is.
func filled(t *testing.T, at string, v reflect.Value) {
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() && v.Type() != reflect.TypeFor[Row]() {
			t.Errorf("%s.%s is zero", at, v.Type().Field(i).Name)
		}
		if f.Kind() == reflect.Slice && f.Len() > 0 {
			f = f.Index(0)
		}
		filled(t, at+"."+v.Type().Field(i).Name, f)
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		row   Row
		scale float64
		want  Outcome
	}{
		{Row{Value: 80, Target: ptr(80), Better: Less}, 1, Pass},
		{Row{Value: 80.1, Target: ptr(80), Better: Less}, 1, Miss},
		{Row{Value: 80, Target: ptr(80), Better: More}, 1, Pass},
		{Row{Value: 79.9, Target: ptr(80), Better: More}, 1, Miss},
		{Row{Value: 1, Target: ptr(80), Better: Less}, .1, None},
		{Row{Value: 1, Better: Less}, 1, None},
		{Row{Value: math.NaN(), Target: ptr(80), Better: Less}, 1, Miss},
	} {
		if got := c.row.Judge(c.scale).Outcome; got != c.want {
			t.Errorf("%+v at scale %g: %s, want %s", c.row, c.scale, got, c.want)
		}
	}
}

func TestWhatIsGood(t *testing.T) {
	good := func(change func(*Scenario)) bool {
		r := example()
		s := &r.Scenarios[0]
		s.Failed, s.Violations, s.Rows = "", nil, s.Rows[:1]
		change(s)
		return r.Good()
	}
	if !good(func(*Scenario) {}) {
		t.Error("a run without a fault is not good")
	}
	for name, change := range map[string]func(*Scenario){
		"failed":   func(s *Scenario) { s.Failed = "x" },
		"violated": func(s *Scenario) { s.Violations = map[string]Violations{"duplicate": {Count: 1}} },
		"missed":   func(s *Scenario) { s.Rows = append(s.Rows, Row{Outcome: Miss}) },
	} {
		if good(change) {
			t.Errorf("a run that %s is good", name)
		}
	}
}

func TestResultsOutliveTheirProcess(t *testing.T) {
	name, want := filepath.Join(t.TempDir(), "result.json"), example()
	if err := want.WriteFile(name); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Scenarios[0].Latencies[0].Histogram.Summary(), want.Scenarios[0].Latencies[0].Histogram.Summary(); a != b {
		t.Errorf("latencies %+v, were %+v", a, b)
	}
	got.Scenarios[0].Latencies, want.Scenarios[0].Latencies = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, text := range []string{`{"version": 1}`, `{}`, `{"version": 2, "extra": 1}`, `x`} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := example().Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`endpoint +last +71.2 ms +<= 80 ms +ok +istiod 272 ms`, `rate +25000 1/s +>= 20000 1/s +ok`, `CPU +0.3 s +<= 0.1 s +MISSED`, `endpoint: FAILED`,
		`endpoint: VIOLATION duplicate, 2 times`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 71.23456: "71.2", 0.034567: "0.0346", 123456: "123456", 0.00000012: "0", -2.5: "-2.5", 100: "100"} {
		if got := Number(v); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
}

// runs makes results whose one figure has these values, each a minute after the other of its set.
func runs(label string, better Better, offset time.Duration, values ...float64) []Result {
	var all []Result
	for i, v := range values {
		all = append(all, Result{Label: label, Started: time.Unix(0, 0).Add(time.Duration(i)*time.Minute + offset),
			Scenarios: []Scenario{{Name: "endpoint", Scale: 1, Proxies: 10, Rows: []Row{{Name: "last", Unit: "ms", Value: v, Better: better}}}}})
	}
	return all
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		better        Better
		before, after []float64
		want          Difference
		change        float64
	}{
		{"slower", Less, []float64{10, 11, 12}, []float64{22, 20, 24}, Worsened, 1},
		{"faster", Less, []float64{22, 20, 24}, []float64{10, 11, 12}, Improved, -.5},
		{"more is better", More, []float64{10, 11, 12}, []float64{22, 20, 24}, Improved, 1},
		{"noise", Less, []float64{10, 11, 21}, []float64{22, 20, 24}, Same, 1},
		{"too few", Less, []float64{10, 11}, []float64{20, 22}, Undecided, 1},
	} {
		got, err := Compare(runs("a", c.better, 0, c.before...), runs("b", c.better, 30*time.Second, c.after...))
		if err != nil || len(got.Rows) != 1 {
			t.Fatal(err, got)
		}
		row := got.Rows[0]
		if row.Result != c.want || math.Abs(row.Change-c.change) > 1e-9 || !got.Interleaved || len(got.Warnings) > 0 {
			t.Errorf("%s: %+v, interleaved %t, %v", c.name, row, got.Interleaved, got.Warnings)
		}
	}
}

func TestCompareSaysWhatItCannot(t *testing.T) {
	sequential, err := Compare(runs("a", Less, 0, 1, 2, 3), runs("b", Less, time.Hour, 1, 2, 3))
	if err != nil || sequential.Interleaved || len(sequential.Warnings) != 1 {
		t.Errorf("sets one after the other: %+v, %v", sequential, err)
	}
	other := runs("b", Less, 30*time.Second, 1)
	other[0].Scenarios[0].Rows = append(other[0].Scenarios[0].Rows, Row{Name: "new"})
	other[0].Machine.Cores = 64
	failed := runs("a", Less, 0, 1)
	for _, r := range []*Result{&failed[0], &other[0]} {
		r.Scenarios = append(r.Scenarios, Scenario{Name: "broken", Failed: "x", Rows: []Row{{Name: "void"}}})
	}
	got, err := Compare(failed, other)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"new: only after", "different machines"} {
		if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("no %q in %q", want, got.Warnings)
		}
	}
	for _, row := range got.Rows {
		if row.Name == "void" {
			t.Error("a failed scenario was compared")
		}
	}
	if _, err := Compare(nil, other); err == nil {
		t.Error("nothing was compared with something")
	}
	var b bytes.Buffer
	if err := got.Table(&b); err != nil || !strings.Contains(b.String(), "1 ms (1 to 1)") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
