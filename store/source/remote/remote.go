// Package remote is the sources of other clusters than the config cluster: Secrets of the config cluster's system namespace name them, and have a
// kubeconfig for each. Clusters come, get other credentials and go as these Secrets do.
//
// Owns: which clusters there are, their credentials (in memory, and sealed below clusters/ in etcd), their sources.  Reads: store/apiserver, store/kv, store/source/kube,
// store/object, store/origin.  Never: logs a kubeconfig, or stores one that is not sealed, nor repeats a value of one; reads a file, runs a program or follows a
// redirection on the word of a Secret; has anybody wait for another cluster.
package remote

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
)

// Label is what the Secrets have, as istiod has it (istioctl create-remote-secret).
const Label = "istio/multiCluster=true"

// keyCluster is a field of log lines.
const keyCluster = "cluster"

// Most bounds how many other clusters are read.
const Most = 200

// MostBytes bounds a kubeconfig: it is one value in etcd.
const MostBytes = 256 << 10

// AtOnce bounds how many of them are listed for the first time at once: what was decoded of a list and is not stored yet takes several times the memory that it takes then.
const AtOnce = 8

// Config is what New needs.
type Config struct {
	Kubeconfig string      // path, of the config cluster; empty: the service account of the Pod that this process is in
	Namespace  string      // of the Secrets
	Own        string      // what the config cluster is called
	Allowed    []string    // what a kubeconfig may have beside inline data (apiserver.Options)
	Source     kube.Config // what the sources have in common; API and Cluster are set for each
	Log        *slog.Logger
	Store      Store
	Sealer     Sealer // nil: without a key encryption key the leader stores nothing, and no other process asks another cluster
	// Expect is called with the clusters that there are; known: the Secrets were listed in full. A cluster that is gone was forgotten before.
	Expect func(all []origin.Origin, known bool)
	// Settle returns once what the sources emitted before is taken, and Refer was called of the Secrets that it refers to; nil: no Secret of another cluster is
	// read but those that name clusters. Its error is the context's.
	Settle func(context.Context) error
}

// Clusters follows other clusters. Its methods are safe for concurrent use.
type Clusters struct {
	Config
	secrets *kube.Secrets
	changed chan struct{} // one place: the Secrets are others, or a check has passed
	named   chan struct{} // one place: the Secrets are others, for Lead
	turns   *kube.Turns
	logged  *obs.Sampled // lines that a Secret can bring about
	start   func(kube.Config) (source, error)
	trying  sync.WaitGroup // for checks

	mu        sync.Mutex // guards what follows; nothing blocks under it
	wanted    []candidate
	problems  []object.Problem // of the Secrets
	refused   []object.Problem // kubeconfigs that are not used
	listed    bool             // the Secrets were, once
	wrong     string           // why the Secrets cannot be read
	forbidden bool             // that is for want of a right
	running   map[string]*cluster
	checks    map[string]*check // of those that are running
	refers    []object.Reference
	complete  chan struct{} // closed once the config cluster was emitted, so that its objects refer to what they refer to
}

// source is what is needed of kube.Source.
type source interface {
	Origin() origin.Origin
	Check(context.Context) error
	Refer([]object.Reference)
	Run(ctx context.Context, emit func([]object.Event)) error
	Problems() []object.Problem
	ReadUntil() (until time.Time, everywhere bool)
	Accounts() bool
}

// cluster is one that is read.
type cluster struct {
	source source
	digest [sha256.Size]byte // of its kubeconfig
	since  time.Time
	whole  time.Time // lastWhole; with the lock
	stop   func()    // ends its source, and waits for that
}

// New reads the kubeconfig of the config cluster; nothing is asked before Run. An error: the kubeconfig cannot be read, or an allowed option is none.
func New(c Config) (*Clusters, error) {
	if err := apiserver.CheckOptions(c.Allowed); err != nil {
		return nil, err
	}
	k := newClusters(c)
	k.start = func(c kube.Config) (source, error) { return kube.New(c) }
	var err error
	k.secrets, err = kube.NewSecrets(c.Kubeconfig, c.Namespace, Label, k.applySecrets, k.noteFailure)
	return k, err
}

func newClusters(c Config) *Clusters {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Clusters{Config: c, changed: make(chan struct{}, 1), named: make(chan struct{}, 1), turns: kube.NewTurns(AtOnce), logged: obs.NewSampled(c.Log), running: map[string]*cluster{}, checks: map[string]*check{},
		complete: make(chan struct{})}
}

// Refer says which Secrets objects refer to, in whatever cluster: each source reads those of its own.
func (k *Clusters) Refer(references []object.Reference) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refers = references
	for _, c := range k.running {
		c.source.Refer(references)
	}
}

// Complete says that all but the Secrets of the config cluster was emitted: what refers to Secrets of other clusters is known then. Until it is called these
// clusters wait, as everything does that the leader writes; it counts until Incomplete.
func (k *Clusters) Complete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.complete:
	default:
		close(k.complete)
	}
}

// Incomplete says, before Run is called again, that the config cluster is to be emitted again.
func (k *Clusters) Incomplete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = make(chan struct{})
}

// settle is what a source asks before it reads Secrets.
func (k *Clusters) settle(ctx context.Context) error {
	k.mu.Lock()
	complete := k.complete
	k.mu.Unlock()
	select {
	case <-complete:
		return k.Settle(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// applySecrets replaces the wanted clusters by those that all Secrets name.
func (k *Clusters) applySecrets(all []*corev1.Secret) {
	wanted, problems := candidatesOf(all, k.Own)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted, k.problems, k.listed = wanted, problems, true
	k.wake()
	select {
	case k.named <- struct{}{}:
	default:
	}
}

// wake has the sources looked at.
func (k *Clusters) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// noteFailure notes why the Secrets cannot be read: known clusters go on.
func (k *Clusters) noteFailure(wrong string, forbidden bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong, k.forbidden = wrong, forbidden
}

// Run follows the clusters until ctx ends, whose error it returns. What a source emits goes to emit, which is called by several goroutines, by
// one for each cluster; after a source has ended its objects are forgotten (object.Forget). Run may be called again.
func (k *Clusters) Run(ctx context.Context, emit func([]object.Event)) error {
	return k.run(ctx, emit, k.secrets.Run)
}

// run keeps the sources as the Secrets say, which watch follows.
func (k *Clusters) run(ctx context.Context, emit func([]object.Event), watch func(context.Context) error) error {
	var secrets sync.WaitGroup
	secrets.Go(func() { _ = watch(ctx) }) // its error is the context's
	defer k.end(emit)
	defer secrets.Wait() // nothing is taken after the end
	for {
		select {
		case <-k.changed:
			k.reconcile(ctx, emit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end stops everything.
func (k *Clusters) end(emit func([]object.Event)) {
	k.trying.Wait() // their context has ended
	k.mu.Lock()
	running := k.running
	k.running, k.checks, k.wanted, k.problems, k.refused, k.wrong, k.listed = map[string]*cluster{}, map[string]*check{}, nil, nil, nil, "", false
	k.mu.Unlock()
	for _, c := range running {
		c.stop()
		forget(c.source.Origin(), emit)
	}
	k.Expect(nil, false)
	select {
	case <-k.changed:
	default:
	}
}

func forget(of origin.Origin, emit func([]object.Event)) {
	emit([]object.Event{{Op: object.Forget, ID: object.ID{Origin: of}}})
}

// reconcile starts and stops sources, so that they are those that the Secrets name. A kubeconfig that is refused, or has not passed its check, changes
// nothing of a cluster that is read already. Which clusters there are is said after those that go are forgotten, and before one begins: what is stored of it stands then.
func (k *Clusters) reconcile(ctx context.Context, emit func([]object.Event)) {
	k.mu.Lock()
	wanted, running := k.wanted, maps.Clone(k.running)
	k.mu.Unlock()
	k.endChecks(wanted)
	next, refused := k.open(ctx, wanted, running)
	named := map[string]bool{}
	var expected []origin.Origin
	for _, w := range wanted {
		named[w.cluster] = true
		expected = append(expected, origin.New(w.cluster, origin.Kube)) // also where its kubeconfig is refused: what is stored of it stands
	}
	for name, c := range running {
		if !named[name] {
			k.Log.Info("a cluster is not read any more: no Secret names it", keyCluster, name)
		} else if next[name] == nil {
			continue
		}
		c.stop()
		forget(c.source.Origin(), emit)
		k.mu.Lock()
		delete(k.running, name)
		k.mu.Unlock()
	}
	k.Expect(expected, true)
	for _, w := range wanted {
		if s := next[w.cluster]; s != nil {
			k.begin(ctx, w, s, emit)
		}
	}
	k.mu.Lock()
	k.refused = refused
	k.mu.Unlock()
}

// open makes the sources of clusters that are not read yet, and takes those whose other kubeconfig has passed its check; it begins checks. It
// waits for no API server.
func (k *Clusters) open(ctx context.Context, wanted []candidate, running map[string]*cluster) (next map[string]source, refused []object.Problem) {
	next = map[string]source{}
	for _, w := range wanted {
		before := running[w.cluster]
		if before != nil && before.digest == w.digest {
			continue
		}
		if s, tried := k.passes(w); tried {
			if s != nil {
				next[w.cluster] = s
			}
			continue
		}
		s, err := k.sourceOf(w)
		if err != nil {
			k.logged.Warn("the kubeconfig of a cluster is not used", w.cluster, keyCluster, w.cluster, "secret", w.secret, obs.KeyError, err)
			refused = append(refused, w.problem(k.Namespace, problem.NotAllowed, fmt.Sprintf("the kubeconfig of cluster %s is not used: %v", w.cluster, err)))
			continue
		}
		if before != nil {
			k.try(ctx, w, s)
			continue
		}
		next[w.cluster] = s
	}
	return next, refused
}

// sourceOf makes the source of a cluster.
func (k *Clusters) sourceOf(w candidate) (source, error) {
	api, err := apiserver.Inline(w.kubeconfig, k.Allowed)
	if err != nil {
		return nil, err
	}
	c := k.Source
	c.Turns = k.turns
	c.API, c.Cluster, c.Log = api, w.cluster, k.Log.With(keyCluster, w.cluster)
	if k.Settle != nil {
		c.Settle = k.settle
	}
	return k.start(c)
}

// begin runs a source.
func (k *Clusters) begin(ctx context.Context, w candidate, next source, emit func([]object.Event)) {
	ctx, cancel := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	next.Refer(k.refers)
	var runs sync.WaitGroup
	runs.Go(func() { _ = next.Run(ctx, emit) }) // its error is the context's
	k.running[w.cluster] = &cluster{source: next, digest: w.digest, since: time.Now(), stop: func() {
		cancel()
		runs.Wait()
	}}
	k.Log.Info("a cluster is read", keyCluster, w.cluster, "secret", w.secret)
}
