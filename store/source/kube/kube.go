// Package kube is the source that reads the API objects of one Kubernetes cluster, by lists and watches. It emits them
// as events for the ingester, which converts objects to records. The config cluster is the cluster whose Istio objects
// are read. Of other clusters only the built-in kinds of Kubernetes are read, and optionally WorkloadEntries.
//
// Owns: the lists and watches, the last emitted state of each object. Reads: the API server. Never: writes to the API
// server; interprets specs, except to drop fields that no record needs; treats a partial list as complete.
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

// Config contains the settings of a Source. Zero durations mean the defaults.
type Config struct {
	Kubeconfig string       // path of a kubeconfig; empty: the service account of this process's Pod
	API        *rest.Config // replaces Kubeconfig; nil: Kubeconfig is used
	// Cluster is the name of the cluster in the origins of objects; empty: the config cluster. From other clusters, the
	// mesh configuration and Istio's kinds are not read, except WorkloadEntries if the field WorkloadEntries is set.
	Cluster         string
	WorkloadEntries bool   // also read WorkloadEntries of another cluster (PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY)
	SystemNamespace string // namespace of the mesh configuration; default istio-system
	// Revision is the revision of Istio whose objects are read (label istio.io/rev), in addition to objects without the
	// label. Its mesh configuration is ConfigMap istio-<Revision>, or istio for "default". An empty Revision means
	// "default".
	Revision   string
	SharedMesh string // name of a second ConfigMap, for fields that the first does not set (SHARED_MESH_CONFIG); empty: no such ConfigMap
	Namespace  string // the only namespace of namespaced objects, except the mesh configuration (ISTIO_WATCH_NAMESPACE); empty: all namespaces
	// Ignore has patterns (path.Match) for kinds of Istio and the Gateway API that are not read, in the form
	// RESOURCE.GROUP. Kinds that match Include are read nevertheless. (PILOT_IGNORE_RESOURCES, PILOT_INCLUDE_RESOURCES)
	Ignore, Include []string
	Limits          Limits // bounds of the memory for this cluster
	Turns           *Turns // bounds the number of clusters that are listed for the first time concurrently; nil: no bound

	Quiet time.Duration // changes are collected for this time before they are emitted; default 10 ms
	// Grace is the time for which deletions of configuration are collected. After this time the API server is queried
	// whether the CustomResourceDefinitions of the deleted objects still exist. Default 250 ms; negative: no query.
	Grace    time.Duration
	Compare  time.Duration // interval of repeated lists that find missed changes, varied by up to a tenth; default 10 min
	Silence  time.Duration // a watch without any event or bookmark (one a minute) for this time is reopened; default 3 min
	Answer   time.Duration // timeout of one page of a list, of a discovery, and of the start of a watch; default 1 min
	Discover time.Duration // interval of discovery of served kinds; default 10 s, of another cluster 1 min
	Log      *slog.Logger  // nil: nothing is logged
	// Settle must block until the ingester has processed all earlier events, and has called Refer with the Secrets that
	// the objects in these events refer to. It must return the context's error when the context ends, else nil. If the
	// field Settle is nil, the event Synced does not wait for referenced Secrets.
	Settle func(context.Context) error

	lose  func(watch.Event) bool // for tests: drops the event if it returns true
	pause time.Duration          // pause where a prompt retry is useless; default 1 min
}

// Stats counts the work of a Source since New, over all calls of Run.
type Stats struct {
	Lists    uint64 // complete lists of a kind
	Watches  uint64 // watches opened, except watches that begin with an initial list
	Silent   uint64 // watches reopened because they were silent
	Repaired uint64 // objects that a repeated list found new, changed or gone
	Stale    uint64 // lists refused because they were older than received objects
	Events   uint64 // events emitted
}

// Source reads one cluster. Make it with New. Its Config must not be changed. Its exported methods are safe for
// concurrent use, with two exceptions: only one Run may run at a time, and Check must not be called during Run.
type Source struct {
	Config
	origin   origin.Origin
	clients  *clients
	ready    chan struct{} // capacity 1: there are events to emit
	progress watchProgress

	referred chan struct{} // capacity 1: references changed

	mu            sync.Mutex // guards the fields below; not held while blocking
	references    []object.Reference
	kinds         map[kindID]*follower
	selection     selection
	meshes        Meshes
	touched       map[object.ID]bool       // objects whose state may differ from the emitted one; true: marked since the last emission
	leaving       leaving                  // deletions among touched that wait for confirmation
	lost          map[object.ID]object.Why // reason of each deletion that waits for its emission
	decided       []object.Event           // events to emit unchanged
	listing       []object.ID              // the kinds of the last Synced event
	beyond        []object.Reference       // referenced Secrets that are not read, because there are too many
	discover      bool                     // the served kinds were discovered: kinds is complete
	hidden        bool                     // the API server of another cluster forbids discovery of WorkloadEntry
	wrong         string                   // reason for which the last discovery failed; empty: it succeeded
	settled       bool                     // the referenced Secrets are followed, or no Secrets are to be read
	complete      bool                     // everything was listed in full
	emittedSynced bool                     // Synced was emitted, or is about to be
	began         time.Time                // start of Run; zero: not running
	turn          func()                   // ends this cluster's turn for its first lists (Turns); nil: no turn is in progress

	lists, watches, silent, repaired, stale, events atomic.Uint64
}

// New returns a Source. It sends no request: Run does. It fails if the cluster's name or a pattern of Ignore or Include
// is invalid, and the error names that value. It also fails if the kubeconfig, or else the service account, cannot be
// loaded, or if a credential or TLS setting is unusable.
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

// newSource returns a Source after setting the defaults.
func newSource(c Config, clients *clients) *Source {
	c.SystemNamespace, c.Revision = cmp.Or(c.SystemNamespace, "istio-system"), cmp.Or(c.Revision, "default")
	c.Quiet, c.Compare = cmp.Or(c.Quiet, 10*time.Millisecond), cmp.Or(c.Compare, 10*time.Minute)
	c.Silence, c.Answer, c.pause = cmp.Or(c.Silence, 3*time.Minute), cmp.Or(c.Answer, time.Minute), cmp.Or(c.pause, time.Minute)
	discover := 10 * time.Second
	if c.Cluster != "" { // there may be hundreds of other clusters
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

// reset clears everything that was read. The caller has locked Source.mu, or has the only reference to s.
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

// end clears everything that was read, and ends the turn of this cluster (Turns).
func (s *Source) end() {
	s.endTurn()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
}

// Origin returns the origin of all objects and events of this source.
func (s *Source) Origin() origin.Origin { return s.origin }

// Stats returns the counters since New.
func (s *Source) Stats() Stats {
	return Stats{Lists: s.lists.Load(), Watches: s.watches.Load(), Silent: s.silent.Load(),
		Repaired: s.repaired.Load(), Stale: s.stale.Load(), Events: s.events.Load()}
}

// meshName returns the name of the ConfigMap with the mesh configuration of this revision.
func (s *Source) meshName() string {
	if s.Revision != "default" {
		return "istio-" + s.Revision
	}
	return "istio"
}

// Run emits all objects of the cluster, then a Synced event, then all changes. It returns only after ctx ends, with the
// error of ctx. Run calls emit from one goroutine, and waits for its return. Until Synced, a call of emit passes events
// of any objects. After Synced, each call passes the changes in one namespace, or one more Synced event with a changed
// list of kinds. Objects that the Config does not select are not emitted. Failures of the API server are retried, and
// reported by Problems. Run may be called again after it has returned; it then emits everything again.
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
			for _, events := range s.takeEvents(now) {
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

// settle starts the reading of referenced Secrets, after everything else was listed and emitted. It blocks in
// Config.Settle.
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

// starter returns a function that starts a follower (the reader of one kind) for each given kind.
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

// follow starts a follower for each kind, and discovers served kinds until ctx ends. Nothing is emitted before the
// selected namespaces are known. The first lists are concurrent, since an API server may need a second even for a small
// list.
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
	if s.Cluster != "" && !s.WorkloadEntries { // only built-in kinds are read from such a cluster
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

// awaitList blocks until the first complete list of a kind. It returns false if ctx ends before.
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
