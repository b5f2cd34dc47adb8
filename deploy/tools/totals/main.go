// Command totals reads the output of `go test -json` and prints a summary: a line for each package, the output of
// failures, the reasons of skipped tests, and the totals. It fails if a test, a build or a package failed. With -sizes
// it also prints a line for each passed test, with its time and its log lines "size: ...".
//
// Owns: nothing. Reads: standard input. Never: reads the source tree.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// event is a line of test2json, or of go build -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type test struct{ pkg, name string }

type report struct {
	out                        io.Writer
	sizes                      bool
	output                     map[test][]string
	passed, failed, skipped    int // numbers of tests; parents of subtests do not count
	pkgOK, pkgFailed, pkgEmpty int
	reasons                    map[string]string
	perPkg                     map[string][3]int // passed, failed, skipped
	parents                    map[test]bool
}

func main() {
	began := time.Now()
	r := newReport(os.Stdout)
	flag.BoolVar(&r.sizes, "sizes", false, "A line for each test, with the sizes that it logged.")
	flag.Parse()
	in := bufio.NewReader(os.Stdin)
	for {
		row, err := in.ReadBytes('\n')
		if len(row) > 0 {
			r.row(row)
		}
		if err != nil {
			break
		}
	}
	if !r.summary(time.Since(began)) {
		os.Exit(1)
	}
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, reasons: map[string]string{}, perPkg: map[string][3]int{}, parents: map[test]bool{}}
}

// row processes one line; a line that is not an event (compiler output) is printed unchanged.
func (r *report) row(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprint(r.out, string(line))
		return
	}
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "run":
		if parent, _, ok := cutLast(e.Test); ok {
			r.parents[test{e.Package, parent}] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.pkg(e)
		} else {
			r.test(e, key)
		}
	}
}

func (r *report) test(e event, key test) {
	n := r.perPkg[e.Package]
	switch {
	case e.Action == "fail":
		fmt.Fprintf(r.out, "--- FAIL: %s %s (%.2fs)\n%s", e.Package, e.Test, e.Elapsed, strings.Join(r.output[key], ""))
		if !r.parents[key] {
			r.failed++
			n[1]++
		}
	case r.parents[key]:
	case e.Action == "skip":
		r.skipped++
		n[2]++
		r.reasons[e.Package+" "+e.Test] = reason(r.output[key])
	default:
		r.passed++
		n[0]++
		if r.sizes {
			fmt.Fprintf(r.out, "ok    %-36s %6.1fs  %s\n", e.Test, e.Elapsed, sizes(r.output[key]))
		}
	}
	r.perPkg[e.Package] = n
	delete(r.output, key)
}

func (r *report) pkg(e event) {
	n := r.perPkg[e.Package]
	switch e.Action {
	case "pass":
		r.pkgOK++
		fmt.Fprintf(r.out, "ok    %-50s %6.1fs  %d passed", e.Package, e.Elapsed, n[0])
		if n[2] > 0 {
			fmt.Fprintf(r.out, ", %d skipped", n[2])
		}
		fmt.Fprintln(r.out)
	case "skip":
		r.pkgEmpty++
	case "fail":
		r.pkgFailed++
		// Output of the package itself, and of tests that never ended: a panic, a data race, a timeout.
		for _, k := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return strings.Compare(a.name, b.name) }) {
			if k.pkg == e.Package {
				fmt.Fprint(r.out, strings.Join(r.output[k], ""))
			}
		}
		fmt.Fprintf(r.out, "FAIL  %-50s %6.1fs  %d passed, %d failed, %d skipped\n", e.Package, e.Elapsed, n[0], n[1], n[2])
	}
}

// summary prints the totals and reports success; a stream without a package is a failure.
func (r *report) summary(took time.Duration) bool {
	fmt.Fprintln(r.out)
	for _, name := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(r.out, "skipped: %s: %s\n", name, r.reasons[name])
	}
	fmt.Fprintf(r.out, "packages: %d ok, %d failed, %d without tests\n", r.pkgOK, r.pkgFailed, r.pkgEmpty)
	fmt.Fprintf(r.out, "tests:    %d passed, %d failed, %d skipped, in %s\n", r.passed, r.failed, r.skipped, took.Round(time.Second))
	return r.pkgFailed == 0 && r.failed == 0 && r.pkgOK > 0
}

// sizes returns the texts that a test logged as sizes.
func sizes(lines []string) string {
	var all []string
	for _, l := range lines {
		if _, text, ok := strings.Cut(l, "_test.go:"); ok {
			if _, size, ok := strings.Cut(text, ": size: "); ok {
				all = append(all, strings.TrimSpace(size))
			}
		}
	}
	return strings.Join(all, ", ")
}

// reason returns the text of t.Skip: the first line that is not a frame.
func reason(lines []string) string {
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			if _, text, ok := strings.Cut(l, ": "); ok {
				return text
			}
			return l
		}
	}
	return "no reason given"
}

func cutLast(name string) (parent, rest string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
