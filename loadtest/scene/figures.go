package scene

import (
	"fmt"
	"strings"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/loadtest/report"
)

// judged returns the scale for outcomes: another number of proxies than the scenario's also counts as another scale.
func (s *stage) judged() float64 {
	if s.Proxies > 0 && s.Proxies != s.scenario.Proxies {
		return float64(s.Proxies) / float64(s.scenario.Proxies)
	}
	if s.AttackSpan > 0 && s.AttackSpan < s.scenario.attack {
		return float64(s.AttackSpan) / float64(s.scenario.attack)
	}
	return s.Scale
}

// row adds a figure; its target is the scenario's target of that name.
func (s *stage) row(name, unit string, value float64) {
	t, aimed := s.scenario.Targets[name]
	r := report.Row{Name: name, Unit: unit, Value: value, Better: report.Less, Compare: t.Others}
	if t.Most || !aimed && strings.HasSuffix(unit, "/s") {
		r.Better = report.More
	}
	if aimed {
		r.Target = &t.Value
	}
	s.result.Rows = append(s.result.Rows, r.Judge(s.judged()))
}

// cost adds a figure about the servers' processes. If no process is known, it adds a note instead.
func (s *stage) cost(name, unit string, value float64) {
	if len(s.watched()) == 0 {
		s.note("The servers' processes are not known: their processor time and memory were not measured.")
		return
	}
	s.row(name, unit, value)
}

func (s *stage) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, have := range s.result.Notes {
		if have == text {
			return
		}
	}
	s.result.Notes = append(s.result.Notes, text)
}

func (s *stage) latency(name string, h *gauge.Histogram) {
	s.result.Latencies = append(s.result.Latencies, report.Latency{Name: name, Histogram: h})
}

// report adds the proxies' traffic and violations.
func (s *stage) report(stats proxy.Stats) {
	for t, c := range stats.Types {
		if c != (proxy.TypeStats{}) {
			s.result.Traffic[t] = report.Traffic{Responses: c.Responses, Resources: c.Resources, Removed: c.Removed, BytesIn: c.BytesIn,
				Requests: c.Requests, BytesOut: c.BytesOut, Nacks: c.Nacks}
		}
	}
	for kind, v := range stats.Found {
		one := report.Violations{Count: v.Count}
		for _, e := range v.Examples {
			one.Examples = append(one.Examples, e.String())
		}
		s.result.Violations[string(kind)] = one
	}
	s.result.Ended = stats.Ended
}
