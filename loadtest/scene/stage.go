package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/cluster"
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
	SotW     float64  // share of proxies that speak state of the world, not delta
	Stock    bool     // nodes as large as stock Envoys'
	WorkDir  string   // for worlds, data and logs; must exist
	Workers  int      // processes of simulated proxies besides this one; 0: in this process; below: as Files demands
	WorkArgs []string // how a worker is started
	Files    int      // files that a process may open; for Workers below 0
	// AttackArgs is how attackers are started; AttackCPU how many cores they may use, in a cgroup. 0: there is none.
	AttackArgs []string
	AttackCPU  float64
	Attacks    []string      // names of those that are carried out; empty: all
	AttackSpan time.Duration // how long attackers go on; 0: as the scenario says
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

	// Show is told four times a second how things stand; nil: nobody watches. The next one waits for it.
	Show func(Progress)
}

// Progress is what a watcher sees.
type Progress struct {
	Scenario, Phase string
	Elapsed         time.Duration
	Share           float64 // of the phase that is over, 0 to 1; where that is not known, of the proxies that are joined
	Proxies         int     // wanted
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
	mesh     *mesh.Mesh
	churn    *mesh.Churn
	starter  *starter
	cluster  *cluster.Cluster // nil: the world is in a folder
	writer   *Server          // who writes, and tells of commits; nil: not known
	servers  []*Server
	measured []*Server // servers, and the writer
	fleet    Fleet
	make     func(Spec) (Fleet, error) // nil: simulated proxies
	began    time.Time
	without  []string    // pods that are not waited for
	deploys  []mesh.Edit // what is left of the rolling deploy that is under way
	rolling  int         // its service

	mu      sync.Mutex // guards what follows, and result.Series
	phase   string
	share   func() float64 // of the phase that is over; nil: not known
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

// finish takes what the proxies found, and ends everything that the stage has started.
func (s *stage) finish() error {
	var failed error
	if s.fleet != nil {
		stats, err := s.fleet.Stats()
		failed = errors.Join(err)
		s.report(stats)
		failed = errors.Join(failed, s.fleet.Close())
	}
	if s.starter != nil {
		s.starter.stop()
	}
	if s.cluster != nil {
		s.cluster.Close()
	}
	return failed
}

// fleetOf makes the fleet, without proxies.
func (s *stage) fleetOf(change func(*Spec)) (err error) {
	if s.TLS.Authority != nil {
		s.TLS.Authority.Addr = s.servers[0].Addr
	}
	spec := Spec{TLS: s.TLS, Header: s.Header, Stock: s.Stock, Sample: s.Sample, SotW: s.SotW, JoinRate: s.JoinRate,
		WarmTimeout: cmp.Or(s.WarmTimeout, time.Minute+time.Duration(s.proxies())*50*time.Millisecond)}
	for _, one := range s.servers {
		spec.Addrs = append(spec.Addrs, one.Addr)
	}
	if change != nil {
		change(&spec)
	}
	var fleet Fleet
	switch n := s.workers(); {
	case s.make != nil:
		fleet, err = s.make(spec)
	case n > 0:
		fleet, err = newProcesses(n, s.WorkArgs, spec)
	default:
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
	workloads := s.mesh.Workloads(to)
	for i, w := range workloads[from:] {
		if s.scenario.oneAccount {
			w, w.Pod = workloads[0], fmt.Sprintf("%s-%d", workloads[0].Pod, from+i)
		}
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
		id.Metadata = map[string]string{"NAVARCH_IDENTITY": "sds", "NAVARCH_FILES": "sds"} // its agent has a certificate for it, and serves files
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

func (s *stage) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.share = phase, nil
}

// measures says how much of the phase is over, from now on until the next begins.
func (s *stage) measures(share func() float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = share
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
