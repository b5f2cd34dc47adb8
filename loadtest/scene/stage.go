package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/loadtest/report"
)

// Options are what the user decides about all scenarios of a run.
type Options struct {
	Scale    float64  // of worlds and fleets; 1 as the tables say
	Proxies  int      // 0: the scenario's
	Repeats  int      // of each edit that is measured; 0: 5
	Seed     uint64   // 0: the preset's
	Sample   float64  // share of proxies that validate contents
	World    float64  // share of proxies that speak state of the world, not delta
	Stock    bool     // nodes as large as stock Envoys'
	WorkDir  string   // for worlds, data and logs; must exist
	Workers  int      // processes of simulated proxies besides this one; 0: in this process; below: as Files demands
	WorkArgs []string // how a worker is started
	Files    int      // files that a process may open; for Workers below 0
	// WarmTimeout is how long a cluster or listener may wait for what it needs; 0: a minute, and 50 ms for each proxy of the
	// scenario, since all of them may join at once on two cores.
	WarmTimeout time.Duration
	JoinRate    float64 // proxies a second; 0: as fast as it goes

	// Navarchd is the program that is started; empty: Servers are there already, and read ConfigDir.
	Navarchd  string
	Env       []string // of navarchd, besides ours
	Replicas  int      // 0: the scenario's
	Etcd      []string // an etcd for navarchd; empty: an embedded one
	Servers   []*Server
	ConfigDir string
	Form      mesh.Form
	TLS       TLS // to Servers
	Header    [][2]string
	Settle    time.Duration // how long a server whose debug pages are not known is given to read the folder; 0: 10 s

	// Show is told four times a second how things stand; nil: nobody watches. It must not block.
	Show func(View)
}

// View is what a watcher sees.
type View struct {
	Scenario, Phase string
	Elapsed         time.Duration
	Proxies         int // wanted
	Stats           proxy.Stats
	CPU             float64 // of the servers, cores
	RSS             uint64
}

// stage is one scenario while it runs.
type stage struct {
	Options
	scenario Scenario
	result   *report.Scenario
	ctx      context.Context

	dir      string // config folder
	world    *mesh.World
	churn    *mesh.Churn
	starter  *starter
	writer   *Server // who writes, and tells of commits; nil: not known
	servers  []*Server
	measured []*Server // servers, and the writer
	fleet    Fleet
	began    time.Time
	without  []string    // pods that are not waited for
	deploys  []mesh.Edit // what is left of the rolling deploy that is under way
	rolling  int         // its service

	mu      sync.Mutex // guards what follows, and result.Series
	phase   string
	joining int
}

// Run runs one scenario and always gives its result; what kept it from its end is in Failed.
func Run(ctx context.Context, sc Scenario, o Options) report.Scenario {
	result := report.Scenario{Name: sc.Name, Title: sc.Title, World: sc.World, Scale: o.Scale, Started: time.Now().UTC(), MTLS: false,
		Rows: []report.Row{}, Violations: map[string]report.Violations{}, Traffic: map[string]report.Traffic{}}
	ctx, cancel := context.WithTimeout(ctx, sc.limit())
	defer cancel()
	s := &stage{Options: o, scenario: sc, result: &result, ctx: ctx, began: time.Now()}
	if s.Repeats == 0 {
		s.Repeats = 5
	}
	err := s.prepare()
	if err == nil {
		watching, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { s.watch(watching) })
		err = sc.run(s)
		stop()
		wg.Wait()
	}
	err = errors.Join(err, s.finish())
	if err != nil {
		result.Failed = err.Error()
	}
	result.Seconds = time.Since(s.began).Seconds()
	return result
}

// prepare writes the world, starts the servers and waits until they have it.
func (s *stage) prepare() error {
	settings, err := mesh.Load(s.scenario.World)
	if err != nil {
		return err
	}
	settings = settings.Scaled(s.Scale)
	settings.Form = s.Form
	if s.Seed != 0 {
		settings.Seed = s.Seed
	}
	if s.scenario.change != nil {
		s.scenario.change(&settings)
	}
	if s.world, err = mesh.New(settings); err != nil {
		return err
	}
	base, err := os.MkdirTemp(s.WorkDir, s.scenario.Name+"-")
	if err != nil {
		return err
	}
	if s.dir = s.ConfigDir; s.dir == "" {
		s.dir = filepath.Join(base, "mesh")
	}
	s.enter("writing the world")
	if err := s.world.Write(s.dir); err != nil {
		return err
	}
	s.churn = mesh.NewChurn(s.world, s.dir)
	if s.Navarchd == "" {
		s.servers, s.measured = s.Servers, s.Servers
		s.writer = s.Servers[0]
		for _, one := range s.Servers {
			if _, err := gauge.ReadProcess(one.PID); one.PID != 0 && err != nil {
				return fmt.Errorf("%s: %w", one.Name, err)
			}
		}
		s.result.Replicas, s.result.MTLS = len(s.servers), s.TLS.on()
		return s.await("reading the world", s.settled)
	}
	s.starter = &starter{binary: s.Navarchd, dir: base, config: s.dir, etcd: s.Etcd, mesh: filepath.Base(base), env: s.Env, flags: s.scenario.flags}
	if err := s.secure(base, settings.MTLS); err != nil {
		return err
	}
	n := max(1, s.Replicas, s.scenario.Replicas)
	s.result.Replicas, s.result.MTLS = n, settings.MTLS
	s.enter("starting the servers")
	s.writer, s.servers, err = s.starter.cluster(n)
	s.mu.Lock()
	s.measured = s.starter.all
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.await("reading the world", s.ready)
}

// secure has the servers speak TLS where the world wants it: with certificates of the harness, or with their own CA's.
func (s *stage) secure(base string, on bool) error {
	switch {
	case !on:
		return nil
	case s.scenario.authority:
		s.starter.issuer = base
		s.TLS = TLS{Authority: &Authority{Roots: filepath.Join(base, "data", "root-cert.pem"), Key: filepath.Join(base, fileIssuer)}}
		return makeIssuer(base)
	}
	s.starter.ca, s.TLS = base, TLS{Dir: base}
	return MakeCA(base)
}

// ready is nil once all replicas have the whole world.
func (s *stage) ready() error {
	for _, one := range s.servers {
		if err := errors.Join(one.alive(), one.loaded(s.ctx, s.world.Settings.Services)); err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return s.writer.alive()
}

// settled is ready for servers that are not ours: where they have no page that tells, time is.
func (s *stage) settled() error {
	settle := s.Settle
	if settle == 0 {
		settle = 10 * time.Second
	}
	for _, one := range s.servers {
		if err := one.loaded(s.ctx, s.world.Settings.Services); err != nil && time.Since(s.began) < settle {
			return err
		}
	}
	return nil
}

// await polls until is answers nil.
func (s *stage) await(what string, is func() error) error {
	s.enter(what)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := is()
		if err == nil {
			return nil
		}
		for _, one := range s.watched() {
			if dead := one.alive(); dead != nil {
				return dead
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return fmt.Errorf("%s: %w (%w)", what, err, s.ctx.Err())
		}
	}
}

// finish takes what the proxies found, and ends everything that the stage has started.
func (s *stage) finish() error {
	var failed error
	if s.fleet != nil {
		stats, err := s.fleet.Stats()
		failed = errors.Join(err)
		s.tell(stats)
		failed = errors.Join(failed, s.fleet.Close())
	}
	if s.starter != nil {
		s.starter.stop()
	}
	return failed
}

func (s *stage) tell(stats proxy.Stats) {
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

// fleetOf makes the fleet, without proxies.
func (s *stage) fleetOf(change func(*Spec)) (err error) {
	if s.TLS.Authority != nil {
		s.TLS.Authority.Addr = s.servers[0].Addr
	}
	spec := Spec{TLS: s.TLS, Header: s.Header, Stock: s.Stock, Sample: s.Sample, World: s.World, JoinRate: s.JoinRate,
		WarmTimeout: cmp.Or(s.WarmTimeout, time.Minute+time.Duration(s.proxies())*50*time.Millisecond)}
	for _, one := range s.servers {
		spec.Addrs = append(spec.Addrs, one.Addr)
	}
	if change != nil {
		change(&spec)
	}
	var fleet Fleet
	if n := s.workers(); n > 0 {
		fleet, err = newHerd(n, s.WorkArgs, spec)
	} else {
		fleet, err = newLocal(spec)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleet = fleet
	return nil
}

// identities are those of the world's workloads from the from-th to the to-th.
func (s *stage) identities(from, to int) []proxy.Identity {
	all := make([]proxy.Identity, 0, to-from)
	for _, w := range s.world.Workloads(to)[from:] {
		all = append(all, s.identity(w))
	}
	return all
}

func (s *stage) identity(w mesh.Workload) proxy.Identity {
	id := proxy.Identity{Namespace: w.Namespace, Name: w.Pod, Workload: w.Name, ServiceAccount: w.ServiceAccount, IP: w.IP, Cluster: w.Cluster,
		Labels: w.Labels, View: w.Namespace + "/" + w.Name + "/" + w.Zone}
	if w.Zone != "" {
		id.Region, id.Zone = mesh.Region, w.Zone
	}
	if s.result.MTLS {
		id.Metadata = map[string]string{"NAVARCH_IDENTITY": "sds"} // its agent has a certificate for it
	}
	return id
}

// join adds proxies from the from-th to the to-th and waits until all are warm.
func (s *stage) join(from, to int) error {
	s.enter(fmt.Sprintf("%d proxies join", to-from))
	s.mu.Lock()
	s.joining = to
	s.mu.Unlock()
	s.result.Proxies = max(s.result.Proxies, to)
	if err := s.fleet.Add(s.identities(from, to)); err != nil {
		return err
	}
	return s.fleet.WaitJoined(s.ctx)
}

// proxies is how many the scenario has.
func (s *stage) proxies() int {
	if s.Proxies > 0 {
		return s.Proxies
	}
	return max(2, int(float64(s.scenario.Proxies)*s.Scale))
}

// judged is the scale that verdicts are made by: another number of proxies than the table's is another scale.
func (s *stage) judged() float64 {
	if s.Proxies > 0 && s.Proxies != s.scenario.Proxies {
		return float64(s.Proxies) / float64(s.scenario.Proxies)
	}
	return s.Scale
}

// row adds a figure; its target is the scenario's of that name.
func (s *stage) row(name, unit string, value float64) {
	t, aimed := s.scenario.Targets[name]
	r := report.Row{Name: name, Unit: unit, Value: value, Better: report.Less, Compare: t.Others}
	if t.Most || !aimed && strings.HasSuffix(unit, "/s") {
		r.Better = report.More
	}
	if aimed && !t.Told {
		r.Target = &t.Value
	}
	s.result.Rows = append(s.result.Rows, r.Judge(s.judged()))
}

// cost adds a figure that is of the servers' processes; where none of them is known, there is none.
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

func (s *stage) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
}

// watches are the probes of an edit.
func (s *stage) watches(e mesh.Edit) []Watch {
	var all []Watch
	for _, x := range e.Expect {
		for _, name := range x.Names {
			all = append(all, Watch{Type: x.Type, Name: name, Marker: x.Marker, Gone: x.Removed, Among: Select{Namespaces: x.Namespaces, Workload: x.Workload, Not: s.without}})
		}
	}
	return all
}
