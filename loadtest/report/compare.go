package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Comparison compares two sets of runs of the same scenarios, figure by figure.
type Comparison struct {
	Before, After string // labels
	// Interleaved: the runs of the two sets alternated, so that changes on the machine affected both sets.
	Interleaved bool
	Rows        []Compared
	Warnings    []string
}

// Compared is one figure in both sets.
type Compared struct {
	Scenario, Name, Unit  string
	Better                Better
	Before, After         float64 // medians
	BeforeRange           [2]float64
	AfterRange            [2]float64
	BeforeRuns, AfterRuns int
	// Change is (after-before)/before; 0 if before is 0.
	Change float64
	Result Difference
}

// Difference is the result of comparing one figure.
type Difference string

// The results. Improved and Worsened require that the ranges of the runs do not overlap, and at least three runs in
// each set.
const (
	Improved  Difference = "better"
	Worsened  Difference = "worse"
	Same      Difference = "same"      // the ranges overlap
	Undecided Difference = "undecided" // too few runs to distinguish change from noise
)

// enoughRuns is the least number of runs in each set for the results Improved and Worsened.
const enoughRuns = 3

type figure struct{ scenario, name string }

// Compare compares the medians of two sets of runs; the order within a set does not matter. The error reports that one
// set is empty.
func Compare(before, after []Result) (Comparison, error) {
	if len(before) == 0 || len(after) == 0 {
		return Comparison{}, errors.New("compare: want at least one run on each side")
	}
	c := Comparison{Before: before[0].Label, After: after[0].Label, Interleaved: interleaved(before, after)}
	if !c.Interleaved {
		c.Warnings = append(c.Warnings, "the runs did not take turns: what changed on the machine between the sets shows as a difference")
	}
	first, order := gather(before)
	second, _ := gather(after)
	for _, key := range order {
		a, b := first[key], second[key]
		if b == nil {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s, %s: only before", key.scenario, key.name))
			continue
		}
		c.Rows = append(c.Rows, compare(key, a, b))
	}
	for key := range second {
		if first[key] == nil {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s, %s: only after", key.scenario, key.name))
		}
	}
	slices.Sort(c.Warnings)
	for _, r := range append(slices.Clone(before), after...) {
		if r.Machine.CPU != before[0].Machine.CPU || r.Machine.Cores != before[0].Machine.Cores {
			c.Warnings = append(c.Warnings, "the runs are of different machines")
			break
		}
	}
	return c, nil
}

type measured struct {
	row    Row
	values []float64
}

// gather collects the values of each figure; failed scenarios contribute none.
func gather(results []Result) (map[figure]*measured, []figure) {
	all, order := map[figure]*measured{}, []figure{}
	for _, r := range results {
		for _, s := range r.Scenarios {
			if s.Failed != "" {
				continue
			}
			for _, row := range s.Rows {
				key := figure{fmt.Sprintf("%s x%g, %d proxies", s.Name, s.Scale, s.Proxies), row.Name}
				if all[key] == nil {
					all[key] = &measured{row: row}
					order = append(order, key)
				}
				all[key].values = append(all[key].values, row.Value)
			}
		}
	}
	return all, order
}

func compare(key figure, a, b *measured) Compared {
	slices.Sort(a.values)
	slices.Sort(b.values)
	c := Compared{Scenario: key.scenario, Name: key.name,
		Unit: a.row.Unit, Better: a.row.Better, Before: median(a.values), After: median(b.values),
		BeforeRange: ends(a.values), AfterRange: ends(b.values), BeforeRuns: len(a.values), AfterRuns: len(b.values), Result: Same}
	if c.Before != 0 {
		c.Change = (c.After - c.Before) / c.Before
	}
	up, down := c.AfterRange[0] > c.BeforeRange[1], c.AfterRange[1] < c.BeforeRange[0]
	switch {
	case !up && !down:
	case min(len(a.values), len(b.values)) < enoughRuns:
		c.Result = Undecided
	case up == (c.Better == More):
		c.Result = Improved
	default:
		c.Result = Worsened
	}
	return c
}

// median returns the median of sorted values.
func median(v []float64) float64 {
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func ends(v []float64) [2]float64 { return [2]float64{v[0], v[len(v)-1]} }

// interleaved reports whether the runs of the two sets alternated in time: never three runs of one set in succession.
// With two runs in all, it reports whether they are of different sets.
func interleaved(before, after []Result) bool {
	type run struct {
		result Result
		side   int
	}
	var runs []run
	for _, r := range before {
		runs = append(runs, run{r, 0})
	}
	for _, r := range after {
		runs = append(runs, run{r, 1})
	}
	slices.SortStableFunc(runs, func(a, b run) int { return a.result.Started.Compare(b.result.Started) })
	in := 0
	for i, r := range runs {
		if in++; i > 0 && r.side != runs[i-1].side {
			in = 1
		}
		if in > 2 || in == 2 && len(runs) == 2 {
			return false
		}
	}
	return true
}

// Count returns the number of figures with this result.
func (c Comparison) Count(o Difference) int {
	n := 0
	for _, r := range c.Rows {
		if r.Result == o {
			n++
		}
	}
	return n
}

// Table prints the comparison for a terminal. The error is that of w.
func (c Comparison) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SCENARIO\tFIGURE\t%s\t%s\tCHANGE\t\n", c.Before, c.After)
	for _, r := range c.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%+.1f %%\t%s\n", r.Scenario, r.Name,
			span(r.Before, r.BeforeRange, r.Unit), span(r.After, r.AfterRange, r.Unit), 100*r.Change, r.Result)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, warning := range c.Warnings {
		if _, err := fmt.Fprintln(w, "note:", warning); err != nil {
			return err
		}
	}
	return nil
}

func span(median float64, ends [2]float64, unit string) string {
	return fmt.Sprintf("%s %s (%s to %s)", Number(median), unit, Number(ends[0]), Number(ends[1]))
}
