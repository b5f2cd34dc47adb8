package show

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/cmd/navarchctl/compare"
)

const (
	findingsShown = 10  // maximum number of printed findings of a workload (without --all), and of printed notes
	valueShown    = 300 // maximum number of printed bytes of a value (without --all)
)

// Comparison prints a report of the command compare for people: a summary, a line for each workload, the differences,
// and the arguments. An argument (compare.Argument) is a row of deploy/docs/fidelity.md that explains a difference.
//
// If verbose is true, Comparison prints every finding of the report with its whole values. If verbose is false, it
// prints the first 10 findings of each workload, with values cut after 300 bytes. It prints at most 10 notes of a
// workload. Values may be untrusted text. The report stays unchanged. Errors are those of w.
func Comparison(w io.Writer, r *compare.Report, verbose bool) error {
	var b bytes.Buffer
	n := len(r.Workloads)
	s := r.Summary
	fmt.Fprintf(&b, "%s compared: %d equal, %d with only argued differences, %d different.\n", Plural(n, "workload"),
		s.Equal, s.Argued, s.Different)
	sum := s.Resources.Equal + s.Resources.Argued + s.Resources.Different
	fmt.Fprintf(&b, "%s: %s equal, %s argued, %s different.\n", Plural(sum, "resource"),
		Thousands(s.Resources.Equal), Thousands(s.Resources.Argued), Thousands(s.Resources.Different))
	for _, u := range r.Unread {
		fmt.Fprintf(&b, "not compared: %s: %s\n", Printable(u.Dump), Printable(u.Reason))
	}
	if n > 0 {
		rows := [][]string{{"WORKLOAD", "PROXY", "RESULT", "EQUAL", "ARGUED", "DIFFERENT"}}
		for _, one := range r.Workloads {
			var sum compare.Count
			for _, n := range one.Resources {
				sum.Equal, sum.Argued, sum.Different = sum.Equal+n.Equal, sum.Argued+n.Argued, sum.Different+n.Different
			}
			rows = append(rows, []string{one.Workload, one.Proxy, one.Outcome,
				strconv.Itoa(sum.Equal), strconv.Itoa(sum.Argued), strconv.Itoa(sum.Different)})
		}
		fmt.Fprintln(&b)
		if err := Table(&b, rows); err != nil {
			return err
		}
	}
	for _, one := range r.Workloads {
		workloadFindings(&b, one, verbose)
	}
	if err := arguments(&b, r); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// workloadFindings prints the differences of one workload, and the notes about it.
func workloadFindings(b *bytes.Buffer, one compare.Workload, verbose bool) {
	if len(one.Findings)+len(one.Notes) == 0 && one.More == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%s)\n", Printable(one.Workload), Printable(one.Proxy))
	shown := one.Findings
	if !verbose {
		shown = shown[:min(len(shown), findingsShown)]
	}
	for _, f := range shown {
		path := cmp.Or(strings.TrimPrefix(f.Path, "."), "(the whole resource)")
		fmt.Fprintf(b, "  %s %s %s\n", f.Type, Printable(f.Resource), Printable(path))
		fmt.Fprintf(b, "    istiod   %s\n    Navarch  %s\n", value(f.Istiod, verbose), value(f.Navarch, verbose))
		if len(f.Objects) > 0 {
			fmt.Fprintf(b, "    made by  %s\n", Printable(strings.Join(f.Objects, ", ")))
		}
	}
	if rest := len(one.Findings) + one.More - len(shown); rest > 0 {
		fmt.Fprintf(b, "  and %s more", Plural(rest, "difference"))
		if !verbose && len(one.Findings) > len(shown) {
			b.WriteString(" (--all)")
		}
		b.WriteByte('\n')
	}
	for _, note := range one.Notes[:min(len(one.Notes), findingsShown)] {
		fmt.Fprintf(b, "  note: %s\n", Printable(note))
	}
	if rest := len(one.Notes) - findingsShown; rest > 0 {
		fmt.Fprintf(b, "  and %s more (-o json)\n", Plural(rest, "note"))
	}
}

// value returns a value on one line, cut after valueShown bytes unless verbose is true. For an empty value it returns
// "absent".
func value(json string, verbose bool) string {
	if json == "" {
		return "absent"
	}
	text := Printable(json)
	if !verbose && len(text) > valueShown {
		return strings.ToValidUTF8(text[:valueShown], "") + "..."
	}
	return text
}

// arguments prints each argument of the report. It adds up the places of an argument in all workloads.
func arguments(b *bytes.Buffer, r *compare.Report) error {
	places := map[compare.Argument]int{}
	for _, one := range r.Workloads {
		for _, a := range one.Arguments {
			n := a.Places
			a.Places = 0
			places[a] += n
		}
	}
	if len(places) == 0 {
		return nil
	}
	fmt.Fprintln(b, "\nargued differences, with the table of deploy/docs/fidelity.md")
	rows := [][]string{{"  TABLE", "FIELD", "PLACES", "CLASS", "WHY"}}
	for _, a := range slices.SortedFunc(maps.Keys(places), func(x, y compare.Argument) int {
		return cmp.Or(places[y]-places[x], cmp.Compare(x.Row, y.Row), cmp.Compare(x.Type+x.Field+x.Why, y.Type+y.Field+y.Why))
	}) {
		rows = append(rows, []string{"  " + a.Row, a.Type + " " + a.Field, strconv.Itoa(places[a]), a.Class, a.Why})
	}
	return Table(b, rows)
}
