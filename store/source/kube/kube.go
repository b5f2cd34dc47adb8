// Package kube is the source that reads the API objects of one Kubernetes cluster, and follows their changes by watches.
//
// Owns: the lists and watches, a hash of what was told of each object.  Reads: store/object, store/origin, the API server.  Never: writes to
// the API server; a schema (normal has those), but for the fields that no record needs, which are dropped; takes what was not listed in full
// for the whole; keeps an object.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Config is what New needs. Zero durations mean the defaults.
type Config struct {
	Kubeconfig      string // path; empty: the service account of the Pod that this process is in
	Cluster         string // in origins; empty: the config cluster
	SystemNamespace string // where the mesh configuration is; default istio-system
	Revision        string // mesh configuration is ConfigMap istio-<Revision>; empty or default: istio
	Namespace       string // the only namespace whose objects are read (ISTIO_WATCH_NAMESPACE); empty: all
	AllowEmpty      bool   // objects of a kind that is not served any more go at once, instead of being held

	Quiet    time.Duration // changes gather so long before they are told; default 10 ms
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
	heard   heard

	mu        sync.Mutex // guards what follows; nothing blocks under it
	kinds     map[kindID]*follower
	selection selection
	pending   []object.Event
	discover  bool   // the kinds that are served are known: kinds is complete
	wrong     string // why the API server cannot be asked what it serves
	told      bool   // Synced is told

	lists, watches, silent, repaired, events atomic.Uint64
}

// New reads the kubeconfig, and checks the configuration; nothing is asked of the API server before Run.
func New(c Config) (*Source, error) {
	c.SystemNamespace = cmp.Or(c.SystemNamespace, "istio-system")
	c.Quiet, c.Compare = cmp.Or(c.Quiet, 10*time.Millisecond), cmp.Or(c.Compare, 10*time.Minute)
	c.Silence, c.Answer, c.Discover = cmp.Or(c.Silence, 3*time.Minute), cmp.Or(c.Answer, time.Minute), cmp.Or(c.Discover, 10*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Cluster != "" {
		if err := origin.CheckCluster(c.Cluster); err != nil {
			return nil, err
		}
	}
	clients, err := connect(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Source{Config: c, origin: origin.New(c.Cluster, origin.Kube), clients: clients}, nil
}

// Origin is that of everything that this source tells, and of its Synced.
func (s *Source) Origin() origin.Origin { return s.origin }

// Stats is safe for concurrent use.
func (s *Source) Stats() Stats {
	return Stats{Lists: s.lists.Load(), Watches: s.watches.Load(), Silent: s.silent.Load(), Repaired: s.repaired.Load(), Events: s.events.Load()}
}

// Problems is what hinders reading now, by kind: what was read before stands. Safe for concurrent use.
func (s *Source) Problems() []object.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []object.Problem
	say := func(id object.ID, code problem.Code, message string) {
		id.Origin = s.origin
		all = append(all, object.Problem{ID: id, Location: location, Code: code, Severity: problem.Error, Message: message})
	}
	if s.wrong != "" {
		say(object.ID{}, problem.Unreadable, "the API server does not say which kinds it serves: "+s.wrong)
	}
	if s.selection.wrong != "" {
		say(object.ID{Kind: "ConfigMap", Namespace: s.SystemNamespace, Name: s.meshName()}, problem.Invalid, s.selection.wrong)
	}
	for _, f := range s.kinds {
		id := object.ID{Group: f.kind.group, Kind: f.kind.kind}
		switch {
		case f.gone && len(f.table) > 0:
			say(id, problem.Held, fmt.Sprintf("is not served any more, and the deletion of %d objects was not seen: the last good ones are held (--allow-empty lets them go)", len(f.table)))
		case f.wrong != "":
			say(id, problem.Unreadable, "cannot be read from the API server: "+f.wrong+"; what was read before stands")
		}
	}
	slices.SortFunc(all, func(a, b object.Problem) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Message, b.Message)) })
	return all
}

func (s *Source) meshName() string {
	if s.Revision != "" && s.Revision != "default" {
		return "istio-" + s.Revision
	}
	return "istio"
}

// Run tells everything that is in the cluster, then Synced, then every change, until ctx ends: its error is the only one. emit is called
// from one goroutine, with what belongs together in one call: after Synced, what changed in one namespace. Run may be called again after it
// has returned, and begins anew: it tells everything again.
func (s *Source) Run(ctx context.Context, emit func([]object.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.kinds, s.selection, s.pending, s.discover, s.told, s.wrong = map[kindID]*follower{}, newSelection(s.Namespace), nil, false, false, ""
	s.ready = make(chan struct{}, 1)
	s.mu.Unlock()
	var all sync.WaitGroup
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
			for _, events := range s.take() {
				s.events.Add(uint64(len(events)))
				emit(events)
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

// enqueue adds events to what is told next. With the lock.
func (s *Source) enqueue(events ...object.Event) {
	if s.pending = append(s.pending, events...); len(events) == 0 {
		return
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// synced tells Synced once every kind that is served was listed in full. With the lock.
func (s *Source) synced() {
	if s.told || !s.discover {
		return
	}
	for _, f := range s.kinds {
		if !f.complete {
			return
		}
	}
	s.told = true
	s.enqueue(object.Event{Op: object.Synced, ID: object.ID{Origin: s.origin}})
	s.Log.Info("everything was read from Kubernetes", obs.KeyKinds, len(s.kinds))
}

// take is what waits, in parts that are told together: up to Synced all of it, then by namespace. Kubernetes has no change of
// several objects, and a busy namespace is to hold up no other.
func (s *Source) take() (parts [][]object.Event) {
	s.mu.Lock()
	pending, told := s.pending, s.told
	s.pending = nil
	s.mu.Unlock()
	if !told && len(pending) > 0 {
		return [][]object.Event{pending}
	}
	if i := slices.IndexFunc(pending, func(e object.Event) bool { return e.Op == object.Synced }); i >= 0 {
		parts, pending = append(parts, pending[:i+1]), pending[i+1:]
	}
	at := map[string]int{}
	for _, e := range pending {
		i, known := at[e.ID.Namespace]
		if !known {
			i = len(parts)
			at[e.ID.Namespace] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], e)
	}
	return parts
}

// errNoAnswer is why a request ended that took too long.
var errNoAnswer = errors.New("no answer in time")
