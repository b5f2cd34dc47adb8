// Package show runs the steps of a demo in order, and prints for each one what it demonstrates, the expected and the
// measured result.
//
// Owns: its output. Reads: nothing. Never: knows the content of a step.
package show

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Step is one demonstration.
type Step struct {
	Name, Expect string
	// Run runs the step and returns the measured result. An error means that the step did not pass.
	Run func(context.Context) (measured string, err error)
}

// Row is the result of a step.
type Row struct {
	Step
	Measured string
	Err      error // why the step did not pass
	Took     time.Duration
}

// Failed reports whether a step did not pass.
func Failed(rows []Row) bool {
	for _, r := range rows {
		if r.Err != nil {
			return true
		}
	}
	return false
}

// Play runs the steps in order, and prints one or two lines about each. A failed step does not stop the others. An
// error of dead (a program that ended by itself) does, and so does the end of ctx.
func Play(ctx context.Context, out io.Writer, steps []Step, dead func() error) []Row {
	var rows []Row
	for i, s := range steps {
		fmt.Fprintf(out, "[%2d/%d] %s ... ", i+1, len(steps), s.Name)
		began := time.Now()
		measured, err := s.Run(ctx)
		ended := dead()
		if err == nil {
			err = ended
		}
		r := Row{s, measured, err, time.Since(began)}
		rows = append(rows, r)
		if err != nil {
			fmt.Fprintf(out, "FAIL after %.1fs\n        %s\n        %v\n", r.Took.Seconds(), measured, err)
		} else {
			fmt.Fprintf(out, "ok, %.1fs\n        %s\n", r.Took.Seconds(), measured)
		}
		if ctx.Err() != nil || ended != nil {
			break
		}
	}
	return rows
}

// Summary prints the final table; long cells continue on the next line.
func Summary(out io.Writer, rows []Row) {
	table := [][3]string{{"step", "expected", "measured"}}
	outcomes := []string{""}
	ok := 0
	for _, r := range rows {
		outcome := "FAIL"
		if r.Err == nil {
			outcome = "ok"
			ok++
		}
		table, outcomes = append(table, [3]string{r.Name, r.Expect, r.Measured}), append(outcomes, outcome)
	}
	widths := [3]int{32, 40, 64}
	rule := strings.Repeat("-", widths[0]+widths[1]+widths[2]+4+6)
	fmt.Fprintln(out)
	for i, cells := range table {
		var lines [3][]string
		height := 0
		for j := range cells {
			lines[j] = wrap(cells[j], widths[j])
			height = max(height, len(lines[j]))
		}
		for n := range height {
			for j := range cells {
				text := ""
				if n < len(lines[j]) {
					text = lines[j][n]
				}
				fmt.Fprintf(out, "%-*s  ", widths[j], text)
			}
			if n == 0 {
				fmt.Fprint(out, outcomes[i])
			}
			fmt.Fprintln(out)
		}
		if i == 0 || i == len(table)-1 {
			fmt.Fprintln(out, rule)
		}
	}
	fmt.Fprintf(out, "%d of %d steps held\n", ok, len(rows))
}

// wrap breaks text between words into lines of at most width, where possible.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
