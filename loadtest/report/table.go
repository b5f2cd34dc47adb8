package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Table prints the result for a terminal: one line for each figure, then violations and failures. The error is that of
// w.
func (r Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tFIGURE\tVALUE\tTARGET\t\tOTHERS")
	for _, s := range r.Scenarios {
		name := s.Name
		for _, row := range s.Rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, row.Name, row.Text(), row.Goal(), row.Outcome.Mark(), row.Compare)
			name = ""
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range r.Scenarios {
		for _, line := range s.wrong() {
			if _, err := fmt.Fprintf(w, "%s: %s\n", s.Name, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrong returns the lines about violations and failures.
func (s Scenario) wrong() []string {
	var lines []string
	if s.Failed != "" {
		lines = append(lines, "FAILED: "+s.Failed)
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Violations)) {
		v := s.Violations[kind]
		lines = append(lines, fmt.Sprintf("VIOLATION %s, %d times: %s", kind, v.Count, strings.Join(v.Examples[:min(1, len(v.Examples))], "")))
	}
	return lines
}

// Mark returns a symbol for the outcome that does not depend on colours.
func (o Outcome) Mark() string {
	switch o {
	case Pass:
		return "ok"
	case Miss:
		return "MISSED"
	case None:
	}
	return ""
}

// Text returns the value with its unit.
func (r Row) Text() string { return Number(r.Value) + " " + r.Unit }

// Goal returns the target with its direction and unit; empty without a target.
func (r Row) Goal() string {
	if r.Target == nil {
		return ""
	}
	sign := "<="
	if r.Better == More {
		sign = ">="
	}
	return sign + " " + Number(*r.Target) + " " + r.Unit
}

// Number formats a value with three significant digits and without an exponent.
func Number(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', min(digits, 6), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
