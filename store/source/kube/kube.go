// Package kube is the source that reads the API objects of one Kubernetes cluster, and follows their changes by watches.
//
// Owns: the lists and watches, what was told of each object.  Reads: store/object, store/origin, store/source/guard, the API server.  Never:
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

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/source/guard"
)

// Config is what New needs. Zero durations mean the defaults.
type Config struct {
	Kubeconfig      string        // path; empty: the service account of the Pod that this process is in
	Cluster         string        // in origins; empty: the config cluster
	SystemNamespace string        // where the mesh configuration is; default istio-system
	Revision        string        // mesh configuration is ConfigMap istio-<Revision>; empty or default: istio
	Namespace       string        // the only namespace whose objects are read (ISTIO_WATCH_NAMESPACE); empty: all
	AllowEmpty      bool          // whatever vanishes goes at once: the shrink guard holds nothing
	Memory          *guard.Memory // of what vanished before; nil: nothing is known

	Quiet    time.Duration // changes gather so long before they are told; default 10 ms
	Grace    time.Duration // deletions of configuration gather so long, so that those that belong together are judged together; default 250 ms, < 0: none
	Compare  time.Duration // everything is listed again, and compared, after so long; default 10 min
	Silence  time.Duration // a watch that says nothing for so long, not even a bookmark (one a minute), is opened again; default 3 min
	Answer   time.Duration // a list or the beginning of a watch that takes longer has failed; default 1 min
	Discover time.Duration // the kinds that are served are looked at so often; default 10 s
	Log      *slog.Logger

	lose func(watch.Event) bool // for tests: events that do not arrive
}

// Stats counts what a Source has done.
type Stats struct {
	Lists    uint64 // complete lists of a kind
	Watches  uint64 // watches opened, those that begin with a list not counted
	Silent   uint64 // watches that were opened again because they said nothing
	Repaired uint64 // objects that a list after the first one of their kind found changed or gone
	Events   uint64 // events told
}

// Source follows one cluster.
type Source struct {
	Config
	origin  origin.Origin
	clients *clients
	ready   chan struct{} // one place: pending is not empty

	mu        sync.Mutex // guards what follows; nothing blocks under it
	kinds     map[kindID]*follower
	selection selection
	guard     *guard.Guard
	touched   map[object.ID]bool // others than they were told, or again as they were: to be judged
	leaving   leaving            // deletions among touched that wait
	decided   []object.Event     // to be told as they are
	held      []object.Loss
	discover  bool   // the kinds that are served are known: kinds is complete
	wrong     string // why the API server cannot be asked what it serves
	complete  bool   // everything was listed in full
	told      bool   // Synced is told

	lists, watches, silent, repaired, events atomic.Uint64
}

// New reads the kubeconfig, and checks the configuration; nothing is asked of the API server before Run.
func New(c Config) (*Source, error) {
	if c.Cluster != "" {
		if err := origin.CheckCluster(c.Cluster); err != nil {
			return nil, err
		}
	}
	clients, err := connect(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newSource(c, clients), nil
}

// newSource fills in the defaults.
func newSource(c Config, clients *clients) *Source {
	c.SystemNamespace = cmp.Or(c.SystemNamespace, "istio-system")
	c.Quiet, c.Compare = cmp.Or(c.Quiet, 10*time.Millisecond), cmp.Or(c.Compare, 10*time.Minute)
	c.Silence, c.Answer, c.Discover = cmp.Or(c.Silence, 3*time.Minute), cmp.Or(c.Answer, time.Minute), cmp.Or(c.Discover, 10*time.Second)
	c.Grace = max(cmp.Or(c.Grace, 250*time.Millisecond), 0)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{Config: c, origin: origin.New(c.Cluster, origin.Kube), clients: clients}
	s.reset()
	return s
}

// reset forgets everything that was read. With the lock, or before anybody has the Source.
func (s *Source) reset() {
	s.kinds, s.selection, s.guard = map[kindID]*follower{}, newSelection(s.Namespace), guard.New(s.AllowEmpty, s.Memory)
	s.touched, s.leaving, s.decided, s.held = map[object.ID]bool{}, leaving{}, nil, nil
	s.discover, s.complete, s.told, s.wrong = false, false, false, ""
	s.ready = make(chan struct{}, 1)
}

// end forgets what was read: while nothing is read, nothing is held either.
func (s *Source) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
}

// Origin is that of everything that this source tells, and of its Synced.
func (s *Source) Origin() origin.Origin { return s.origin }

// Stats is safe for concurrent use.
func (s *Source) Stats() Stats {
	return Stats{Lists: s.lists.Load(), Watches: s.watches.Load(), Silent: s.silent.Load(), Repaired: s.repaired.Load(), Events: s.events.Load()}
}

func (s *Source) meshName() string {
	if s.Revision != "" && s.Revision != "default" {
		return "istio-" + s.Revision
	}
	return "istio"
}

// Run tells everything that is in the cluster, then Synced, then every change, until ctx ends: its error is the only one. emit is called
// from one goroutine, with what belongs together in one call: after Synced, what changed in one namespace. Run may be called again after it
// has returned, and begins again: it tells everything again.
func (s *Source) Run(ctx context.Context, emit func([]object.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.reset()
	s.mu.Unlock()
	var all sync.WaitGroup
	defer s.end()
	defer all.Wait()
	defer cancel()
	all.Go(func() { s.follow(ctx, &all) })
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	for armed := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ready:
			if !armed {
				quiet.Reset(s.Quiet)
			}
			armed = true
		case <-quiet.C:
			armed = false
			now := time.Now()
			for _, events := range s.take(now) {
				s.events.Add(uint64(len(events)))
				emit(events)
			}
			if wait, some := s.waits(now); some {
				quiet.Reset(wait)
			}
		}
	}
}

// follow starts a follower for each kind, and looks for kinds that are served, until ctx ends. What says which namespaces are read is
// first.
func (s *Source) follow(ctx context.Context, all *sync.WaitGroup) {
	start := func(kinds ...kind) {
		for _, k := range kinds {
			s.mu.Lock()
			f := s.newFollower(k)
			s.kinds[k.id()] = f
			s.mu.Unlock()
			ctx, cancel := context.WithCancel(ctx)
			f.stop = cancel
			all.Go(func() { f.run(ctx) })
		}
	}
	first := []kind{namespaces, s.meshConfiguration()}
	start(first...)
	for _, k := range first {
		if !s.awaitList(ctx, k) {
			return
		}
	}
	start(s.builtIn()...)
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

// errNoAnswer is why a request ended that took too long.
var errNoAnswer = errors.New("no answer in time")
