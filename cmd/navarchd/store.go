package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/hostnames"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/embedded"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/removal"
	"navarch.io/navarch/store/source/files"
	"navarch.io/navarch/store/source/guard"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/source/remote"
	"navarch.io/navarch/store/tenants"
)

// openStore connects to etcd, or starts the embedded one, which runs until it is closed.
func openStore(c *config, log *slog.Logger) (store *kv.Store, server []loop.Task, closed func() error, err error) {
	if c.dataDir != "" {
		etcd, err := embedded.Start(embedded.Config{Mesh: c.mesh, Revision: c.env.revision, Dir: c.dataDir, Logger: log})
		if err != nil {
			return nil, nil, nil, err
		}
		return etcd.Store, []loop.Task{{Name: "etcd", Run: etcd.Run}}, etcd.Close, nil
	}
	cfg, err := c.etcd.Config()
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Mesh, cfg.Revision, cfg.Logger = c.mesh, c.env.revision, log
	if store, err = kv.Open(cfg); err != nil {
		return nil, nil, nil, err
	}
	return store, nil, store.Close, nil
}

// ingester is the role ingest: the folder, the Kubernetes cluster, the leader's loop, the election.
type ingester struct {
	source    *files.Source    // nil: there is no folder
	kube      *kube.Source     // nil: there is no cluster
	clusters  *remote.Clusters // beside kube; nil with it
	loop      *ingest.Loop
	lead      *lead.Elector
	tenants   *tenants.Tenants
	writer    *kubernetesWriter // nil: there is no cluster
	keeper    *removal.Keeper
	losses    *removal.Losses
	roots     []*rootCerts      // nil: there is no cluster, or they are not to be written
	hooks     *webhooks.Leader  // nil: webhook configurations are not to be written
	vms       *registered       // nil: machines do not register themselves
	automatic *automatic        // nil: hosts are given no automatic addresses
	names     *hostnames.Leader // nil: names of gateways are not resolved
	keySets   *jwks.Leader
	status    *objectStatus       // nil: there is no cluster, or PILOT_ENABLE_STATUS is false
	found     *problems.Collector // what the replicas found, while this process leads
	alone     string              // the one replica that there can be when the first term begins (embedded etcd); empty: there may be others
	store     *kv.Store
	log       *slog.Logger
}

// newIngester makes the role: seen is how far this process has read the chain of heads, committed is told of each batch. Errors name flags.
func newIngester(c *config, store *kv.Store, sealer ingest.Sealer, seen func() kv.Place, known *tenants.Tenants, log *slog.Logger, committed func(revision int64, event, began time.Time, batch kv.Batch)) (*ingester, error) {
	memory := &guard.Memory{}
	source, cluster, err := newSources(c, memory, log)
	if err != nil {
		return nil, err
	}
	clusters, err := newClusters(c, memory, log)
	if err != nil {
		return nil, err
	}
	elector, err := lead.New(lead.Config{Store: store, Name: c.processName(), Lease: c.lease, Logger: log, Alone: c.dataDir != ""})
	if err != nil {
		return nil, err
	}
	alone := ""
	if c.dataDir != "" {
		alone = c.processName()
	}
	losses := &removal.Losses{Store: store, Memory: memory, Log: log}
	options := ingest.Options{AllowEmpty: c.allowNone, Budget: c.budget, Normal: c.normal(), Sources: sourcesOf(c, source, cluster), Remote: clusters != nil, Memory: memory}
	var referred func([]object.Reference)
	if cluster != nil {
		options.SecretUses, referred = secretUses, func(all []object.Reference) {
			cluster.Refer(all)
			clusters.Refer(all)
		}
	}
	i := &ingester{
		losses:   losses,
		alone:    alone,
		tenants:  known,
		source:   source,
		kube:     cluster,
		clusters: clusters,
		lead:     elector,
		found:    problems.NewCollector(log),
		store:    store,
		log:      log,
		loop: ingest.New(ingest.Config{
			Store: store, Sealer: sealer, Seen: seen, Remember: losses.Write, Log: log, Committed: committed, Options: options, Referred: referred,
		}),
	}
	i.names = newNames(c, i.loop, log)
	if i.keySets, err = newKeySets(c, i.loop, log); err != nil {
		return nil, err
	}
	if cluster != nil {
		if i.writer, err = newKubernetesWriter(c, store, elector, func() { i.automatic.wake() }, log); err != nil {
			return nil, err
		}
		cluster.Settle = func(ctx context.Context) error {
			defer clusters.Complete()
			return i.loop.Settle(ctx)
		}
		clusters.Settle = i.loop.Settle
		clusters.Expect = func(all []origin.Origin, known bool) { i.loop.Expect(ingest.Remotes{Known: known, Origins: all}) }
	}
	i.keeper = i.newKeeper(c.processName(), c.heldFor)
	return i, nil
}

// objectsOfBurst is how many objects are read, or records written, in a burst that is worth tidying up after, as when a cluster is listed; edits are far from it.
const objectsOfBurst = 10_000

// burst counts these: where a cluster is listed the records are written after that, for a minute or so, and leave as much behind.
func burst(s ingest.Stats) uint64 { return (s.Normalised + s.Puts + s.Deletes) / objectsOfBurst }

// part is what the role adds to its process.
func (i *ingester) part() part {
	tasks := []loop.Task{
		{Name: "ingest", Run: i.loop.Run},
		i.takeOver(),
		{Name: "lead", Run: func(ctx context.Context) error { return i.lead.Run(ctx, i.leads) }},
		{Name: "problems", Run: i.logProblems},
	}
	if i.source != nil {
		tasks = append(tasks, loop.Task{Name: "files", Run: func(ctx context.Context) error {
			return i.source.Run(ctx, changes.CountFirst(i.log, i.source.Dir, i.automatic.emit(i.loop.Emit)))
		}})
	}
	p := part{tasks: tasks, bursts: []func() uint64{func() uint64 { return burst(i.loop.Stats()) }}}
	if i.clusters != nil {
		p.gauges = append(p.gauges, i.clusters.Gauges)
	}
	return p
}

// shown is what /debug shows of the role; commits are the newest of this process.
func (i *ingester) shown(commits func() []inspect.Commit) *debug.Objects {
	return &debug.Objects{Sources: i.sourceProblems, Loop: i.loop.Problems, Total: i.loop.ProblemCount, Found: i.found, Held: i.heldProblem, Commits: commits}
}

// leads is one term.
func (i *ingester) leads(ctx context.Context, epoch kv.Epoch) error {
	obs.Leading.Set(1)
	defer obs.Leading.Set(0)
	current, err := i.level(ctx)
	if err != nil {
		return err
	}
	if err := i.losses.Recall(ctx, epoch); err != nil {
		return fmt.Errorf("what vanished under the leader before: %w", err)
	}
	defer i.forgetKube() // after Lost: else what is forgotten would be taken out of the store
	i.loop.Gained(epoch)
	defer i.loop.Lost()
	notifying, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { i.tenants.Lead(notifying, i.store, epoch, i.loop, i.log) })
	others.Go(func() { i.keep(notifying, epoch) })
	if i.status == nil { // else it asks itself
		others.Go(func() { i.withdraw(notifying, epoch) })
	}
	if i.writer != nil {
		others.Go(func() { i.writer.lead(notifying, epoch) })
	}
	i.readClusters(notifying, epoch, &others)
	for _, r := range i.roots {
		others.Go(func() { r.lead(notifying, epoch) })
	}
	if i.vms != nil {
		others.Go(func() { i.vms.lead(notifying, epoch) })
	}
	if i.names != nil {
		others.Go(func() { i.names.Run(notifying, i.store, epoch) })
	}
	others.Go(func() { i.keySets.Run(notifying, i.store, epoch) })
	if i.automatic != nil {
		others.Go(func() { i.automatic.lead(notifying, epoch) })
	}
	others.Go(func() { i.hooks.Lead(notifying, epoch.Revision) })
	others.Go(func() { i.keepLevel(notifying, epoch, current) })
	others.Go(func() {
		if err := i.found.Run(notifying, i.store); err != nil {
			i.log.Error("what the replicas find wrong with objects is not collected", obs.KeyError, err)
		}
	})
	defer func() { stop(); others.Wait() }()
	for {
		alone := i.alone
		i.alone = ""
		err := place.Lead(ctx, epoch, place.LeaderConfig{Store: i.store, Log: i.log, Alone: alone,
			Wrote: func(_ *ring.Ring, moved int) { obs.RingMoved.Add(float64(moved)) }})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kv.ErrDeposed):
			return err
		}
		i.log.Warn("no ring is made, trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
}

// readClusters begins to read the clusters in Kubernetes, where there are some, until ctx ends.
func (i *ingester) readClusters(ctx context.Context, epoch kv.Epoch, others *sync.WaitGroup) {
	if i.kube == nil {
		return
	}
	i.clusters.Incomplete()
	emit := i.loop.Emit
	if i.status != nil {
		i.status.begin()
		emit = i.status.emit(emit)
		others.Go(func() { i.status.lead(ctx, epoch) })
	}
	emit = i.automatic.emit(emit)
	others.Go(func() { _ = i.kube.Run(ctx, emit) })            // its error is the context's
	others.Go(func() { _ = i.clusters.Run(ctx, i.loop.Emit) }) // its error is the context's
	others.Go(func() { asof.Lead(ctx, i.store, epoch, i.toldOf, i.loop.Settled, i.log) })
}

func newMirror(c *config, store *kv.Store, log *slog.Logger, t *telemetry) (*mirror.Mirror, error) {
	disk, err := c.snapshot()
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return mirror.New(mirror.Config{Source: store, Logger: log, Disk: disk, Hooks: mirror.Hooks{
		Published: func(c mirror.Change) {
			at := c.Committed
			if at.IsZero() {
				at = time.Now()
			}
			t.commits.Saw(c.New.Revision(), at)
			obs.Revision.Set(float64(c.New.Revision()))
			traceMirror(t.tracer, c)
			t.changes.Published(c)
		},
		Alarm: func(err error) {
			obs.StoreAlarm.WithLabelValues("identity").Set(flag(err != nil))
		},
		Held: countHeld,
		Contact: func(err error) {
			obs.StoreAlarm.WithLabelValues("away").Set(flag(err != nil))
		},
	}})
}

// countHeld shows which kinds a replica holds.
func countHeld(held []mirror.Held) {
	obs.HeldKinds.Reset()
	for _, h := range held {
		kind := h.Kind
		if _, known := model.ParseKind(kind); !known {
			kind = "unknown" // names are whoever's
		}
		obs.HeldKinds.WithLabelValues(kind).Set(1)
	}
	obs.StoreAlarm.WithLabelValues("contents").Set(flag(len(held) > 0))
}

// snapshot is where the last snapshot is kept; nil where there is no folder for it, or where etcd is in this process.
func (c *config) snapshot() (*mirror.Disk, error) {
	if c.stateDir == "" || c.dataDir != "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.stateDir, 0o700); err != nil {
		return nil, err
	}
	mesh := c.mesh
	if own := c.env.revision; own != kv.DefaultRevision {
		mesh = path.Join(mesh, own) // another revision's records are of no use
	}
	return &mirror.Disk{Path: filepath.Join(c.stateDir, "snapshot"), Mesh: mesh, MaxAge: c.snapshotAge}, nil
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// spacePart is what following the size of etcd adds to a process.
func spacePart(s *kv.Space) part {
	return part{tasks: []loop.Task{{Name: "space", Run: s.Run}}, notes: []func() []string{func() []string {
		if text, _ := s.Warning(); text != "" {
			return []string{text}
		}
		return nil
	}}}
}

// awayProblems is what /debug/problems says while etcd does not answer.
func awayProblems(why error) []inspect.Problem {
	if why == nil {
		return nil
	}
	return []inspect.Problem{{Object: "etcd", Location: "etcd", Code: problem.Unreadable, Severity: problem.Error, Message: "it does not answer, and what was read of it stands: " + why.Error()}}
}

// spaceProblems is what /debug/problems says of the size of etcd.
func spaceProblems(s *kv.Space) []inspect.Problem {
	text, full := s.Warning()
	if text == "" {
		return nil
	}
	severity := problem.Warning
	if full {
		severity = problem.Error
	}
	return []inspect.Problem{{Object: "etcd", Location: "etcd", Code: problem.NotAllowed, Severity: severity, Message: text}}
}
