package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	const in = `goos: linux
pkg: navarch.io/navarch/cmd/internal/bench
cpu: some CPU
BenchmarkStart-2                 	       1	 405986835 ns/op
BenchmarkEdit/endpoint/services=500-2         	    1850	    110067 ns/op	  1234 B/op	 5 allocs/op
BenchmarkSnapshotMemory-2  2	 110034886 ns/op	         5.769 MB
PASS
`
	var out strings.Builder
	failed, err := table(strings.NewReader(in), &out)
	if failed || err != nil {
		t.Fatal(failed, err)
	}
	for _, want := range []string{"some CPU", "cmd/internal/bench  Start", "406ms", "<= 2 s", "Edit/endpoint/services=500", "110µs", "1234 B/op, 5 allocs/op", "5.769 MB", "<= 100 MB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if failed, _ := table(strings.NewReader("--- FAIL: BenchmarkStart\n"), &out); !failed {
		t.Error("a failed benchmark is not told")
	}
}
