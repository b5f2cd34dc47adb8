package scene

import (
	"context"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/report"
)

// harnessName is the common name of the processes of simulated proxies.
const harnessName = "harness"

// samples contains the samples of all processes.
type samples struct {
	order       []string
	memory, cpu map[string]*report.Series
	used        map[string]*report.Process
	last        map[string]sample
	joined      report.Series
}

// sample is one process, or several together, at one moment.
type sample struct {
	at  time.Time
	cpu time.Duration
	rss uint64
}

func newSamples() *samples {
	return &samples{memory: map[string]*report.Series{}, cpu: map[string]*report.Series{},
		used: map[string]*report.Process{}, last: map[string]sample{},
		joined: report.Series{Name: "joined", Group: "proxies", Unit: "proxies"}}
}

// add adds a sample, and returns the cores used since the last one. CPU time before the first sample counts for the
// scenario only if the scenario has started the process.
func (m *samples) add(name string, now sample, started bool, since float64) (cores float64) {
	if m.memory[name] == nil {
		m.order = append(m.order, name)
		m.memory[name] = &report.Series{Name: name, Group: "memory", Unit: "MiB resident"}
		m.cpu[name] = &report.Series{Name: name, Group: "processor", Unit: "cores"}
		m.used[name] = &report.Process{Name: name}
		if started {
			m.used[name].CPU = now.cpu.Seconds()
		}
	} else if last := m.last[name]; now.at.After(last.at) {
		used := max(0, now.cpu-last.cpu).Seconds()
		cores = used / now.at.Sub(last.at).Seconds()
		m.used[name].CPU += used
		m.cpu[name].Points = append(m.cpu[name].Points, [2]float64{since, cores})
	}
	m.last[name] = now
	m.memory[name].Points = append(m.memory[name].Points, [2]float64{since, float64(now.rss) / (1 << 20)})
	m.used[name].LastRSS, m.used[name].PeakRSS = now.rss, max(now.rss, m.used[name].PeakRSS)
	return cores
}

// watch samples the servers and the harness, and calls Show, until ctx ends.
func (s *stage) watch(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	m, v := newSamples(), Progress{Scenario: s.scenario.Name}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			s.keep(m)
			return
		case <-tick.C:
		}
		since := time.Since(s.began).Seconds()
		if n%4 == 0 { // once a second suffices for plots
			s.measure(m, &v, since)
		}
		s.look(&v, &m.joined, since)
	}
}

// measure samples all processes.
func (s *stage) measure(m *samples, v *Progress, since float64) {
	v.CPU, v.RSS = 0, 0
	for _, one := range s.watched() {
		if p, err := gauge.Glance(one.PID); err == nil {
			v.CPU += m.add(one.Name, sample{p.At, p.CPU(), p.RSS}, one.cmd != nil, since)
			v.RSS += p.RSS
		}
	}
	s.mu.Lock()
	fleet := s.fleet
	s.mu.Unlock()
	if fleet == nil {
		return
	}
	var own sample
	for _, pid := range fleet.PIDs() {
		if p, err := gauge.Glance(pid); err == nil {
			own = sample{p.At, own.cpu + p.CPU(), own.rss + p.RSS}
		}
	}
	if !own.at.IsZero() {
		m.add(harnessName, own, false, since)
	}
}

// look adds the fleet's counters to the progress.
func (s *stage) look(v *Progress, joined *report.Series, since float64) {
	s.mu.Lock()
	v.Phase, v.Proxies, v.Elapsed = s.phase, s.joining, time.Since(s.began)
	fleet, share := s.fleet, s.share
	s.mu.Unlock()
	if fleet == nil {
		return
	}
	if stats, err := fleet.Stats(); err == nil {
		v.Stats = stats
		joined.Points = append(joined.Points, [2]float64{since, float64(stats.Joined)})
	}
	switch {
	case share != nil:
		v.Share = share()
	case v.Proxies > 0:
		v.Share = min(1, float64(v.Stats.Joined)/float64(v.Proxies))
	default:
		v.Share = 0
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

func (s *stage) keep(m *samples) {
	for _, name := range m.order {
		s.result.Series = append(s.result.Series, *m.memory[name])
		s.result.Processes = append(s.result.Processes, *m.used[name])
	}
	for _, name := range m.order {
		s.result.Series = append(s.result.Series, *m.cpu[name])
	}
	s.result.Series = append(s.result.Series, m.joined)
}
