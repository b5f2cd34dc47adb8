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

// Options are the user's settings for all scenarios of a run.
type Options struct {
	Scale    float64  // factor on the sizes of worlds and fleets
	Proxies  int      // 0: the scenario's number
	Repeats  int      // measurements of each edit; 0: 5
	Seed     uint64   // 0: the preset's seed
	Sample   float64  // share of proxies that validate contents
	SotW     float64  // share of proxies that use state of the world instead of delta
	Stock    bool     // nodes as large as stock Envoys'
	WorkDir  string   // folder for worlds, data and logs; must exist
	Workers  int      // processes for simulated proxies; 0: this one; negative: as many as Files requires
	WorkArgs []string // command line of a worker
	Files    int      // limit of open files of a process, for negative Workers
	// AttackArgs is the command line of attackers. AttackCPU is their limit in cores, enforced by a cgroup; 0: no limit.
	AttackArgs []string
	AttackCPU  float64
	Attacks    []string      // names of the attacks to carry out; empty: all
	AttackSpan time.Duration // duration of attacks; 0: the scenario's
	// WarmTimeout is the longest wait of a cluster or listener for its resources. 0: a minute, plus 50 ms for each proxy
	// of the scenario, because all may join at once on two cores.
	WarmTimeout time.Duration
	JoinRate    float64 // proxies per second; 0: as many as possible

	// Navarchd is the program to start; empty: Servers are running, and read ConfigDir.
	Navarchd  string
	Envoy     string   // program of Envoy, for scenarios with a real one
	Env       []string // further environment of navarchd
	Replicas  int      // 0: the scenario's number
	Etcd      []string // an etcd for navarchd; empty: an embedded one
	Servers   []*Server
	ConfigDir string
	Form      mesh.Form
	TLS       TLS // to Servers
	Header    [][2]string
	// time for a server with unknown debug pages to read the folder; 0: 10 s
	Settle time.Duration

	// Show is called four times a second with the progress; the scenario waits for its return. nil: not called.
	Show func(Progress)
}

// Progress describes the running scenario.
type Progress struct {
	Scenario, Phase string
	Elapsed         time.Duration
	Share           float64 // completed part of the phase, 0 to 1; if unknown, the share of joined proxies
	Proxies         int     // wanted number of proxies
	Stats           proxy.Stats
	CPU             float64 // usage of the servers in cores
	RSS             uint64
}

// stage is one running scenario.
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
	writer   *Server          // the process that writes and reports commits; nil: unknown
	servers  []*Server
	measured []*Server // servers, and the writer
	fleet    Fleet
	make     func(Spec) (Fleet, error) // nil: simulated proxies
	began    time.Time
	without  []string    // Pods that are not waited for
	deploys  []mesh.Edit // remaining edits of the rolling deploy that is under way
	rolling  int         // service of that deploy

	mu      sync.Mutex // guards the fields below, and result.Series
	phase   string
	share   func() float64 // completed part of the phase; nil: unknown
	joining int
}

// Run runs one scenario and always returns its result; Failed is the reason of an incomplete run.
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

// finish adds the proxies' observations, and ends all processes of the stage.
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

// fleetOf creates the fleet, without proxies.
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

// identities returns the identities of workloads from index `from` up to `to`.
func (s *stage) identities(from, to int) []proxy.Identity {
	all := make([]proxy.Identity, 0, to-from)
	if s.scenario.routers {
		for i := from; i < to; i++ {
			all = append(all, s.router(i))
		}
		return all
	}
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
		// its agent has a certificate for it, and serves files
		id.Metadata = map[string]string{"NAVARCH_IDENTITY": "sds", "NAVARCH_FILES": "sds"}
	}
	return id
}

// join adds proxies from index `from` up to `to` and waits until all are warm.
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

// proxies returns the number of proxies of the scenario.
func (s *stage) proxies() int {
	if s.Proxies > 0 {
		return s.Proxies
	}
	return max(min(2, s.scenario.Proxies), int(float64(s.scenario.Proxies)*s.Scale))
}

// enter begins a phase.
func (s *stage) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.share = phase, nil
}

// measures sets the function that returns the completed part of the phase, until the next phase begins.
func (s *stage) measures(share func() float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share = share
}

// watches returns the probes of an edit.
func (s *stage) watches(e mesh.Edit) []Watch {
	var all []Watch
	for _, x := range e.Expect {
		for _, name := range x.Names {
			all = append(all,
				Watch{Type: x.Type, Name: name, Marker: x.Marker, Gone: x.Removed,
					Among: Select{Namespaces: x.Namespaces, Workload: x.Workload, Not: s.without}})
		}
	}
	return all
}
