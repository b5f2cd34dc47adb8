package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/loadtest/scene"
)

// screen prints the progress of a run. On a terminal, each call of show redraws one line. On other outputs it prints a
// line for each phase. Safe for concurrent use.
type screen struct {
	w     io.Writer
	live  bool
	total int

	mu    sync.Mutex
	at    int    // number of the current scenario, from 1
	name  string // name of the current scenario
	phase string // the last printed phase, without a terminal
	drawn bool   // the progress line is on the terminal
}

func newScreen(w io.Writer, total int) *screen {
	_, live := terminal(w)
	return &screen{w: w, live: live, total: total}
}

// begin prints the title of the next scenario.
func (s *screen) begin(name, title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at++
	s.name, s.phase = name, ""
	fmt.Fprintf(s.w, "[%d/%d] %s: %s\n", s.at, s.total, name, title)
}

// end replaces the progress line by the scenario's figures.
func (s *screen) end(r report.Scenario) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	for _, row := range r.Rows {
		outcome := ""
		if row.Target != nil {
			outcome = fmt.Sprintf("  (%s: %s)", row.Goal(), row.Outcome)
		}
		fmt.Fprintf(s.w, "      %-48s %s%s\n", row.Name, row.Text(), outcome)
	}
	for _, kind := range sortedKinds(r.Violations) {
		fmt.Fprintf(s.w, "      VIOLATION %s, %d times\n", kind, r.Violations[kind].Count)
	}
	if r.Failed != "" {
		fmt.Fprintf(s.w, "      FAILED: %s\n", r.Failed)
	}
}

// wipe erases the progress line.
func (s *screen) wipe() {
	if s.drawn {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.drawn = false
	}
}

// show prints the progress of the current scenario. Without a terminal it prints only when the phase changes.
func (s *screen) show(v scene.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		if v.Phase != s.phase {
			s.phase = v.Phase
			fmt.Fprintf(s.w, "      %6.1f s  %s\n", v.Elapsed.Seconds(), v.Phase)
		}
		return
	}
	s.wipe()
	fmt.Fprint(s.w, draw(v))
	s.drawn = true
}

// barWidth is the number of characters of the progress bar.
const barWidth = 24

// draw returns the progress line: the completed part of the phase, the joined and wanted proxies, the servers' memory
// and cores, the elapsed time, the phase and the number of violations.
func draw(v scene.Progress) string {
	full := int(v.Share * barWidth)
	bar := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
	wrong := ""
	if n := v.Stats.Violated(); n > 0 {
		wrong = fmt.Sprintf("  %d VIOLATIONS", n)
	}
	return fmt.Sprintf("  %s %d/%d  %.0f MiB  %.2f cores  %s  %s%s", bar, v.Stats.Joined, v.Proxies, float64(v.RSS)/(1<<20), v.CPU,
		v.Elapsed.Round(100*time.Millisecond), v.Phase, wrong)
}

// sortedKinds returns the kinds of violations, sorted.
func sortedKinds(m map[string]report.Violations) []string { return slices.Sorted(maps.Keys(m)) }
