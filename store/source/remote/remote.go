// Package remote reads the clusters of a mesh other than the config cluster (the cluster with Istio's objects). Secrets
// in the system namespace of the config cluster name these clusters, and contain a kubeconfig for each. When a Secret
// changes, its clusters are added, removed, or read with other credentials.
//
// Owns: the set of clusters, their credentials (in memory, and encrypted below clusters/ in etcd), and the source
// (reader) of each cluster. Reads: the Secrets, the API servers of the clusters, and clusters/ in etcd. Never: logs a
// kubeconfig or a value in it; stores a kubeconfig without encryption; follows a redirect; reads a file or runs a
// program that a Secret names, unless Config.Allowed permits this; delays one cluster because another does not answer.
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

// Label is the label selector of the Secrets that name clusters; istioctl create-remote-secret sets this label.
const Label = "istio/multiCluster=true"

// keyCluster is the key of the cluster's name in log lines.
const keyCluster = "cluster"

// Most is the maximum number of clusters that are read in addition to the config cluster.
const Most = 200

// MostBytes is the maximum size of one kubeconfig, in bytes. A kubeconfig is stored as one value of etcd.
const MostBytes = 256 << 10

// AtOnce is the maximum number of clusters that are listed for the first time concurrently. A decoded list that is not
// stored yet needs several times the memory of its stored form.
const AtOnce = 8

// Config contains the settings of Clusters and Servers.
type Config struct {
	Kubeconfig string   // path of the kubeconfig of the config cluster; empty: the service account of this process's Pod
	Namespace  string   // namespace of the Secrets
	Own        string   // name of the config cluster
	Allowed    []string // kubeconfig features that are allowed in addition to inline data (apiserver.Options)
	// Source has the settings common to all sources. API, Cluster, Turns and Log are replaced for each source, and
	// Settle if it is set below.
	Source kube.Config
	Log    *slog.Logger // nil: nothing is logged
	Store  Store        // for Clusters.Lead and Servers.Run
	Sealer Sealer       // encrypts stored credentials; nil: no credentials are stored, so only the leader reaches the clusters
	// Expect must not be nil. Whenever the Secrets change, Run calls Expect with the origins of all named clusters,
	// sorted by name. The argument known is then true. When Run ends, it calls Expect(nil, false). Before each call,
	// Run has emitted a Forget event for each cluster whose reading ended.
	Expect func(all []origin.Origin, known bool)
	// Settle must block until the ingester has processed all earlier events and has called Refer with the Secrets that
	// the objects in these events refer to. It must return the context's error when the context ends, else nil. If the
	// field Settle is nil, Source.Settle is used.
	Settle func(context.Context) error
}

// Clusters reads the clusters that the Secrets name. Make it with New. Its methods are safe for concurrent use, but
// only one Run and one Lead at a time.
type Clusters struct {
	Config
	secrets *kube.Secrets
	changed chan struct{} // capacity 1: the Secrets changed, or a check passed
	named   chan struct{} // capacity 1: the Secrets changed; read by Lead
	turns   *kube.Turns
	logged  *obs.Sampled // for messages whose rate the author of a Secret controls
	start   func(kube.Config) (source, error)
	trying  sync.WaitGroup // counts the goroutines of checks

	mu        sync.Mutex // guards the fields below; not held while blocking
	wanted    []candidate
	problems  []object.Problem    // invalid entries of Secrets
	refused   []object.Problem    // problems of refused kubeconfigs
	listed    bool                // the Secrets were listed once in full
	wrong     string              // reason for which the Secrets cannot be read; empty: they can be read
	forbidden bool                // the Secrets cannot be read because of missing RBAC permissions
	running   map[string]*cluster // by cluster name
	checks    map[string]*check   // by cluster name; each of these clusters is also in running
	refers    []object.Reference
	complete  chan struct{} // closed once the config cluster's objects were emitted, so that their references to Secrets are known
}

// source is the part of kube.Source that this package uses.
type source interface {
	Origin() origin.Origin
	Check(context.Context) error
	Refer([]object.Reference)
	Run(ctx context.Context, emit func([]object.Event)) error
	Problems() []object.Problem
	ReadUntil() (until time.Time, everywhere bool)
	Accounts() bool
}

// cluster is a cluster that is being read.
type cluster struct {
	source source
	digest [sha256.Size]byte // SHA-256 of its kubeconfig
	since  time.Time         // start of the reading
	whole  time.Time         // see lastWhole; guarded by Clusters.mu
	stop   func()            // stops the source and waits for its end
}

// New returns a Clusters. It loads the kubeconfig of the config cluster, and sends no request: Run does. It fails if
// that kubeconfig cannot be loaded or used, or if c.Allowed contains an unknown option.
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

// newClusters returns a Clusters without a reader of the Secrets.
func newClusters(c Config) *Clusters {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Clusters{Config: c, changed: make(chan struct{}, 1), named: make(chan struct{}, 1), turns: kube.NewTurns(AtOnce),
		logged: obs.NewSampled(c.Log), running: map[string]*cluster{}, checks: map[string]*check{},
		complete: make(chan struct{})}
}

// Refer replaces the list of Secrets and ConfigMaps that objects refer to, in any cluster. Each cluster's source reads
// the Secrets and ConfigMaps of its own cluster. The caller must not change the slice afterwards.
func (k *Clusters) Refer(references []object.Reference) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refers = references
	for _, c := range k.running {
		c.source.Refer(references)
	}
}

// Complete records that all objects of the config cluster, except Secrets, were emitted. From then on the other
// clusters read referenced Secrets, until Incomplete is called.
func (k *Clusters) Complete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.complete:
	default:
		close(k.complete)
	}
}

// Incomplete withdraws Complete. The caller must call Incomplete before it starts Run again, because the config cluster
// is then emitted again.
func (k *Clusters) Incomplete() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.complete = make(chan struct{})
}

// settle is the Settle function of each source: it waits for Complete, then for Config.Settle.
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

// applySecrets replaces the wanted clusters by the clusters that the Secrets name. The parameter secrets is the
// complete list of Secrets.
func (k *Clusters) applySecrets(secrets []*corev1.Secret) {
	wanted, problems := candidatesOf(secrets, k.Own)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted, k.problems, k.listed = wanted, problems, true
	k.wake()
	select {
	case k.named <- struct{}{}:
	default:
	}
}

// wake triggers reconcile, without blocking.
func (k *Clusters) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// noteFailure records the reason for which the Secrets cannot be read; an empty reason means that they can be read.
// Running clusters continue.
func (k *Clusters) noteFailure(wrong string, forbidden bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong, k.forbidden = wrong, forbidden
}

// Run reads the clusters until ctx ends, and returns the error of ctx. emit is called concurrently, by one goroutine
// for each cluster, with events as in kube.Source.Run. After the reading of a cluster has ended, also because its
// credentials changed, Run emits an object.Forget event with the origin of the cluster. Run may be called again after
// it has returned.
func (k *Clusters) Run(ctx context.Context, emit func([]object.Event)) error {
	return k.run(ctx, emit, k.secrets.Run)
}

// run does the same as Run, with a replaceable reader of the Secrets. The function watch must call applySecrets and
// noteFailure.
func (k *Clusters) run(ctx context.Context, emit func([]object.Event), watch func(context.Context) error) error {
	var secrets sync.WaitGroup
	secrets.Go(func() { _ = watch(ctx) }) // its error is the context's
	defer k.end(emit)
	defer secrets.Wait() // no Secret is applied after end
	for {
		select {
		case <-k.changed:
			k.reconcile(ctx, emit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end stops all sources, emits a Forget event for each, and resets the state for the next Run.
func (k *Clusters) end(emit func([]object.Event)) {
	k.trying.Wait() // the context of the checks has ended
	k.mu.Lock()
	running := k.running
	k.running, k.checks = map[string]*cluster{}, map[string]*check{}
	k.wanted, k.problems, k.refused, k.wrong, k.listed = nil, nil, nil, "", false
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

// forget emits a Forget event for an origin.
func forget(of origin.Origin, emit func([]object.Event)) {
	emit([]object.Event{{Op: object.Forget, ID: object.ID{Origin: of}}})
}

// reconcile starts and stops sources so that the wanted clusters are read. A kubeconfig that is refused, or that has
// not passed its check, does not affect a cluster that is being read. Expect is called after the Forget events of
// removed clusters and before other clusters start, so that the stored records of expected clusters are retained.
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
		expected = append(expected, origin.New(w.cluster, origin.Kube)) // even if its kubeconfig is refused: stored records stay
	}
	for name, c := range running {
		if !named[name] {
			k.Log.Info("reading of a cluster ended: no Secret names it", keyCluster, name)
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

// open creates the sources that reconcile starts. The map next has the sources of new clusters, and of clusters whose
// changed kubeconfig has passed its check. Its keys are cluster names. For other changed kubeconfigs it starts a check.
// The result refused has one problem for each kubeconfig that cannot be used. open does not wait for an API server.
func (k *Clusters) open(
	ctx context.Context, wanted []candidate, running map[string]*cluster,
) (next map[string]source, refused []object.Problem) {
	next = map[string]source{}
	for _, w := range wanted {
		before := running[w.cluster]
		if before != nil && before.digest == w.digest {
			continue
		}
		if s, known := k.passedCheck(w); known {
			if s != nil {
				next[w.cluster] = s
			}
			continue
		}
		s, err := k.sourceOf(w)
		if err != nil {
			k.logged.Warn("the kubeconfig of a cluster is not used", w.cluster, keyCluster, w.cluster, "secret", w.secret, obs.KeyError, err)
			message := fmt.Sprintf("the kubeconfig of cluster %s is not used: %v", w.cluster, err)
			refused = append(refused, w.problem(k.Namespace, problem.NotAllowed, message))
			continue
		}
		if before != nil {
			k.startCheck(ctx, w, s)
			continue
		}
		next[w.cluster] = s
	}
	return next, refused
}

// sourceOf returns a source that is not running yet. The error means that the kubeconfig is invalid, or uses features
// that Config.Allowed does not permit.
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

// begin runs a source in a goroutine, and adds it to the running clusters.
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
	k.Log.Info("reading of a cluster started", keyCluster, w.cluster, "secret", w.secret)
}
