// Command benchtable formats the output of `go test -bench` as one table with the targets. It reads standard input and
// fails if a benchmark failed.
//
// Owns: the list of targets. Reads: standard input. Never: compares figures with targets, because machines differ.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// targets are the targets of benchmarks, by a prefix of their names.
var targets = []struct{ prefix, text string }{
	{"Start", "<= 2 s"},
	{"SnapshotMemory", "<= 100 MB"},
	{"AgentMemory", "<= 25 MB"},
	{"Edit", "flat in the number of services"},
}

// result is one line of a benchmark.
type result struct {
	pkg, name string
	time      time.Duration
	metrics   []string // "value unit", without the time
}

var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// parse parses one line; false: the line is not a result.
func parse(text, pkg string) (result, bool) {
	m := line.FindStringSubmatch(text)
	if m == nil {
		return result{}, false
	}
	r := result{pkg: pkg, name: m[1]}
	fields := strings.Fields(m[2])
	for i := 0; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return result{}, false
		}
		if fields[i+1] == "ns/op" {
			r.time = time.Duration(value)
		} else {
			r.metrics = append(r.metrics, fields[i]+" "+fields[i+1])
		}
	}
	return r, true
}

// target returns the target of a benchmark; empty without one.
func target(name string) string {
	for _, t := range targets {
		if strings.HasPrefix(name, t.prefix) {
			return t.text
		}
	}
	return ""
}

// table reads the output of `go test -bench` and writes the table; failed reports whether a package failed.
func table(in io.Reader, out io.Writer) (failed bool, err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\tbenchmark\ttime per operation\tper operation\ttarget")
	pkg := ""
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		text := scan.Text()
		switch {
		case strings.HasPrefix(text, "pkg: "):
			pkg = strings.TrimPrefix(strings.TrimPrefix(text, "pkg: "), "navarch.io/navarch/")
		case strings.HasPrefix(text, "cpu: "):
			fmt.Fprintln(out, strings.TrimPrefix(text, "cpu: "))
		case strings.HasPrefix(text, "FAIL"), strings.HasPrefix(text, "--- FAIL"):
			failed = true
			fmt.Fprintln(out, text)
		default:
			if r, ok := parse(text, pkg); ok {
				fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", r.pkg, r.name, round(r.time), strings.Join(r.metrics, ", "), target(r.name))
			}
		}
	}
	if err := scan.Err(); err != nil {
		return failed, err
	}
	return failed, w.Flush()
}

// round rounds to three digits.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

func main() {
	failed, err := table(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}
