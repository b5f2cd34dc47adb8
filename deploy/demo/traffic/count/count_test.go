package count

import (
	"strings"
	"testing"
	"time"
)

// A span is good only if no request failed, with the required rate and duration, to every workload by every protocol.
func TestJudge(t *testing.T) {
	began := time.Now()
	report := func(after time.Duration, sent, failed, other int) *Report {
		return &Report{At: began.Add(after), Workloads: map[string]*Workload{
			"web":     {Protocols: map[string]*Protocol{"http/1.1": {Sent: sent, Failed: failed, LastFailure: "refused"}}},
			"ratings": {Protocols: map[string]*Protocol{"tcp": {Sent: other}}}}}
	}
	before := report(0, 100, 3, 50)
	for name, test := range map[string]struct {
		now  *Report
		want string
	}{
		"held":     {report(time.Minute, 9_100, 3, 3_050), ""},
		"failed":   {report(time.Minute, 9_100, 4, 3_050), "1 failed: web by http/1.1: 1 of 9000, refused"},
		"slow":     {report(time.Minute, 6_100, 3, 3_050), "150 requests a second"},
		"short":    {report(time.Second, 9_100, 3, 3_050), "traffic for 1s"},
		"left out": {report(time.Minute, 18_100, 3, 50), "nothing was sent to ratings by tcp"},
	} {
		err := test.now.Since(before).Judge(200, time.Minute)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
