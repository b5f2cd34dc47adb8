// Package kube is the source that reads the API objects of one Kubernetes cluster, and follows their changes by watches.
//
// Owns: the lists and watches, what was emitted of each object.  Reads: store/object, store/origin, the API server.  Never:
// writes to the API server; a schema (normal has those), but for the fields that no record needs, which are dropped; takes what was not
// listed in full for the whole.
package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Config is what New needs. Zero durations mean the defaults.
type Config struct {
	Kubeconfig      string       // path; empty: the service account of the Pod that this process is in
	API             *rest.Config // instead of Kubeconfig; nil: that counts
	Cluster         string       // in origins; empty: the config cluster. Of another one neither mesh configuration nor Istio's kinds are read, but for WorkloadEntries
	WorkloadEntries bool         // of another cluster, WorkloadEntries are read (PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY)
	SystemNamespace string       // where the mesh configuration is; default istio-system
	Revision        string       // whose objects are read (istio.io/rev), and mesh configuration, ConfigMap istio-<Revision>; default default, whose ConfigMap is istio
	SharedMesh      string       // a ConfigMap beside it, which stands where it says nothing (SHARED_MESH_CONFIG); empty: none
	Namespace       string       // the only namespace whose objects are read (ISTIO_WATCH_NAMESPACE); empty: all
	Ignore, Include []string     // kinds that are left out, and kinds that are read all the same, as patterns for RESOURCE.GROUP (PILOT_IGNORE_RESOURCES, PILOT_INCLUDE_RESOURCES)
	Limits          Limits       // of what is kept
	Turns           *Turns       // when it is listed for the first time, of several clusters; nil: at once

	Quiet    time.Duration // changes gather so long before they are emitted; default 10 ms
	Grace    time.Duration // deletions of configuration gather so long, then the API server is asked whether their kinds still have definitions; default 250 ms, < 0: none, and it is not asked
	Compare  time.Duration // everything is listed again, and compared, after so long; default 10 min
	Silence  time.Duration // a watch that says nothing for so long, not even a bookmark (one a minute), is opened again; default 3 min
	Answer   time.Duration // a list or the beginning of a watch that takes longer has failed; default 1 min
	Discover time.Duration // the kinds that are served are looked at so often; default 10 s, of another cluster 1 min
	Log      *slog.Logger
	// Settle returns once what was emitted before is taken, and Refer was called of the Secrets that it refers to; nil: no Secret is read. Its
	// error is the context's.
	Settle func(context.Context) error

	lose  func(watch.Event) bool // for tests: events that do not arrive
	pause time.Duration          // where asking again soon is of no use; default 1 min, for tests another one
}

// Stats counts what a Source has done.
type Stats struct {
	Lists    uint64 // complete lists of a kind
	Watches  uint64 // watches opened, those that begin with a list not counted
	Silent   uint64 // watches that were opened again because they said nothing
	Repaired uint64 // objects that a list after the first one of their kind found changed or gone
	Stale    uint64 // lists that were refused because they were older than what was seen
	Events   uint64 // events emitted
}

// Source follows one cluster.
type Source struct {
	Config
	origin   origin.Origin
	clients  *clients
	ready    chan struct{} // one place: there is something to emit
	progress watchProgress

	referred chan struct{} // one place: references are others

	mu            sync.Mutex // guards what follows; nothing blocks under it
	references    []object.Reference
	kinds         map[kindID]*follower
	selection     selection
	meshes        Meshes
	touched       map[object.ID]bool       // others than they were emitted, or again as they were: to be emitted
	leaving       leaving                  // deletions among touched that wait
	lost          map[object.ID]object.Why // of objects that are gone, and not by the API server's word
	decided       []object.Event           // to be emitted as they are
	listing       []object.ID              // the kinds that the last Synced had
	beyond        []object.Reference       // Secrets that are not read, because there are too many
	discover      bool                     // the kinds that are served are known: kinds is complete
	hidden        bool                     // the API server of another cluster may not be asked whether it serves WorkloadEntries
	wrong         string                   // why the API server cannot be asked what it serves
	settled       bool                     // Secrets are followed, or none is to be read
	complete      bool                     // everything was listed in full
	emittedSynced bool                     // Synced was emitted
	began         time.Time                // Run; zero: it does not run
	turn          func()                   // ends the turn in which everything is listed for the first time; nil: there is none

	lists, watches, silent, repaired, stale, events atomic.Uint64
}

// New reads the kubeconfig, and checks the configuration; nothing is asked of the API server before Run.
// An error names what in either cannot be used.
func New(c Config) (*Source, error) {
	if c.Cluster != "" {
		if err := origin.CheckCluster(c.Cluster); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkPatterns(c.Ignore), checkPatterns(c.Include)); err != nil {
		return nil, err
	}
	clients, err := connect(c.API, c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newSource(c, clients), nil
}

// newSource fills in the defaults.
func newSource(c Config, clients *clients) *Source {
	c.SystemNamespace, c.Revision = cmp.Or(c.SystemNamespace, "istio-system"), cmp.Or(c.Revision, "default")
	c.Quiet, c.Compare = cmp.Or(c.Quiet, 10*time.Millisecond), cmp.Or(c.Compare, 10*time.Minute)
	c.Silence, c.Answer, c.pause = cmp.Or(c.Silence, 3*time.Minute), cmp.Or(c.Answer, time.Minute), cmp.Or(c.pause, time.Minute)
	discover := 10 * time.Second
	if c.Cluster != "" { // there may be hundreds
		discover = time.Minute
	}
	c.Discover = cmp.Or(c.Discover, discover)
	c.Limits = c.Limits.orDefault(c.Cluster)
	c.Grace = max(cmp.Or(c.Grace, 250*time.Millisecond), 0)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{Config: c, origin: origin.New(c.Cluster, origin.Kube), clients: clients, referred: make(chan struct{}, 1)}
	s.reset()
	return s
}

// reset forgets everything that was read. With the lock, or before anybody has the Source.
func (s *Source) reset() {
	if s.selection.changed != nil {
		close(s.selection.changed)
	}
	s.kinds, s.selection = map[kindID]*follower{}, newSelection(s.Namespace)
	s.meshes = Meshes{}
	s.touched, s.leaving, s.lost, s.decided, s.listing = map[object.ID]bool{}, leaving{}, map[object.ID]object.Why{}, nil, nil
	s.discover, s.hidden, s.settled, s.complete, s.emittedSynced, s.wrong, s.beyond = false, false, false, false, false, "", nil
	s.ready, s.began = make(chan struct{}, 1), time.Time{}
}

// end forgets what was read.
func (s *Source) end() {
	s.endTurn()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
}

// Origin is that of everything that this source emits, and of its Synced.
func (s *Source) Origin() origin.Origin { return s.origin }

// Stats is safe for concurrent use.
func (s *Source) Stats() Stats {
	return Stats{Lists: s.lists.Load(), Watches: s.watches.Load(), Silent: s.silent.Load(), Repaired: s.repaired.Load(), Stale: s.stale.Load(), Events: s.events.Load()}
}

func (s *Source) meshName() string {
	if s.Revision != "default" {
		return "istio-" + s.Revision
	}
	return "istio"
}

// Run emits everything that is in the cluster, then Synced, then every change, until ctx ends: its error is the only one. emit is called
// from one goroutine, with what belongs together in one call: after Synced, what changed in one namespace. Run may be called again after it
// has returned, and begins again: it emits everything again.
func (s *Source) Run(ctx context.Context, emit func([]object.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.reset()
	s.began = time.Now()
	s.mu.Unlock()
	var all sync.WaitGroup
	defer s.end()
	defer all.Wait()
	defer cancel()
	start := s.starter(ctx, &all)
	all.Go(func() { s.follow(ctx, start) })
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	for armed, settled := false, false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ready:
			if !armed {
				quiet.Reset(s.Quiet)
			}
			armed = true
		case <-s.referred:
			if settled {
				s.followSecrets(start)
			}
		case <-quiet.C:
			armed = false
			now := time.Now()
			for _, events := range s.take(now) {
				s.events.Add(uint64(len(events)))
				emit(events)
			}
			if ids := s.ripe(); len(ids) > 0 {
				all.Go(func() { s.confirm(ctx, ids) })
			}
			if wait, some := s.waits(now); some {
				quiet.Reset(wait)
			}
			if !settled && s.listed() {
				settled = true
				s.endTurn()
				if err := s.settle(ctx, start); err != nil {
					return err
				}
			}
		}
	}
}

// settle has Secrets followed, once everything else was listed and emitted. What is found meanwhile waits.
func (s *Source) settle(ctx context.Context, start func(...kind)) error {
	if s.Settle != nil {
		if err := s.Settle(ctx); err != nil {
			return err
		}
		s.followSecrets(start)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	s.synced()
	return nil
}

// starter starts followers, one for each kind.
func (s *Source) starter(ctx context.Context, all *sync.WaitGroup) func(...kind) {
	return func(kinds ...kind) {
		for _, k := range kinds {
			s.mu.Lock()
			f := s.newFollower(k)
			ctx, cancel := context.WithCancel(ctx)
			f.stop = cancel
			s.kinds[k.id()] = f
			s.mu.Unlock()
			all.Go(func() { f.run(ctx) })
		}
	}
}

// follow starts a follower for each kind, and looks for kinds that are served, until ctx ends. Nothing is emitted before it is known which namespaces
// are read; all lists go at once, since each takes the API server up to a second, however small it is.
func (s *Source) follow(ctx context.Context, start func(...kind)) {
	first := []kind{namespaces}
	if s.Cluster == "" {
		first = append(first, s.meshConfiguration(s.meshName()))
	}
	if shared := s.sharedMesh(); shared != "" && s.Cluster == "" {
		first = append(first, s.meshConfiguration(shared))
	}
	start(first...)
	if !s.awaitTurn(ctx) {
		return
	}
	start(s.builtIn()...)
	var selecting sync.WaitGroup
	defer selecting.Wait()
	selecting.Go(func() {
		for _, k := range first {
			if !s.awaitList(ctx, k) {
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.selectReady()
	})
	if s.Cluster != "" && !s.WorkloadEntries { // its kinds are known
		s.mu.Lock()
		s.discover = true
		s.synced()
		s.mu.Unlock()
		return
	}
	tick := time.NewTicker(s.Discover)
	defer tick.Stop()
	for {
		served, err := s.served(ctx)
		if ctx.Err() != nil {
			return
		}
		start(s.discovered(served, err)...)
		s.mu.Lock()
		s.discover = s.discover || err == nil
		s.synced()
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// awaitList waits for the first complete list of a kind.
func (s *Source) awaitList(ctx context.Context, k kind) bool {
	s.mu.Lock()
	f := s.kinds[k.id()]
	s.mu.Unlock()
	select {
	case <-f.listed:
		return true
	case <-ctx.Done():
		return false
	}
}
