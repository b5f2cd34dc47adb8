package scene

import (
	"context"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/report"
)

// watch samples the servers and tells the watcher, until ctx ends.
func (s *stage) watch(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	type point struct {
		cpu time.Duration
		at  time.Time
	}
	last := map[string]point{}
	memory, cpu, joined := map[string]*report.Series{}, map[string]*report.Series{}, &report.Series{Name: "joined", Group: "proxies", Unit: "proxies"}
	var order []string
	v := View{Scenario: s.scenario.Name}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			s.keep(order, memory, cpu, joined)
			return
		case <-tick.C:
		}
		since := time.Since(s.began).Seconds()
		if n%4 == 0 { // the kernel walks the pages of a process to tell its memory: once a second is enough
			v.CPU, v.RSS = 0, 0
			for _, one := range s.watched() {
				p, err := gauge.ReadProcess(one.PID)
				if err != nil {
					continue
				}
				if memory[one.Name] == nil {
					order = append(order, one.Name)
					memory[one.Name] = &report.Series{Name: one.Name, Group: "memory", Unit: "MiB resident"}
					cpu[one.Name] = &report.Series{Name: one.Name, Group: "processor", Unit: "cores"}
				} else {
					cores := (p.CPU() - last[one.Name].cpu).Seconds() / p.At.Sub(last[one.Name].at).Seconds()
					cpu[one.Name].Points = append(cpu[one.Name].Points, [2]float64{since, cores})
					v.CPU += cores
				}
				last[one.Name] = point{p.CPU(), p.At}
				memory[one.Name].Points = append(memory[one.Name].Points, [2]float64{since, float64(p.RSS) / (1 << 20)})
				v.RSS += p.RSS
			}
		}
		s.look(&v, joined, since)
	}
}

// look completes the view with the fleet's counters.
func (s *stage) look(v *View, joined *report.Series, since float64) {
	s.mu.Lock()
	v.Phase, v.Proxies, v.Elapsed = s.phase, s.joining, time.Since(s.began)
	fleet := s.fleet
	s.mu.Unlock()
	if fleet == nil {
		return
	}
	if stats, err := fleet.Stats(); err == nil {
		v.Stats = stats
		joined.Points = append(joined.Points, [2]float64{since, float64(stats.Joined)})
	}
	if s.Show != nil {
		s.Show(*v)
	}
}

func (s *stage) watched() []*Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Server
	for _, one := range s.measured {
		if one.PID != 0 {
			all = append(all, one)
		}
	}
	return all
}

func (s *stage) keep(order []string, memory, cpu map[string]*report.Series, joined *report.Series) {
	for _, name := range order {
		s.result.Series = append(s.result.Series, *memory[name])
	}
	for _, name := range order {
		s.result.Series = append(s.result.Series, *cpu[name])
	}
	s.result.Series = append(s.result.Series, *joined)
}
