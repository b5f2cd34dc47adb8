package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/removal"
	"navarch.io/navarch/store/source/files"
	"navarch.io/navarch/store/source/guard"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/source/remote"
	"navarch.io/navarch/store/tenants"
)

// ingester is the role ingest: the folder, the Kubernetes cluster, the leader's loop, the election.
type ingester struct {
	source    *files.Source    // nil: there is no folder
	kube      *kube.Source     // nil: there is no cluster
	clusters  *remote.Clusters // beside kube; nil with it
	loop      *ingest.Loop
	lead      *lead.Elector
	writer    *kubernetesWriter // nil: there is no cluster
	keeper    *removal.Keeper
	losses    *removal.Losses
	duties    []duty              // while this process leads
	automatic *automatic          // nil: hosts are given no automatic addresses
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
	if err = i.addDuties(c, known); err != nil {
		return nil, err
	}
	if cluster != nil {
		if i.writer, err = newKubernetesWriter(c, store, elector, func() { i.automatic.wake() }, log); err != nil {
			return nil, err
		}
		i.duties = append(i.duties, duty{lead: i.writer.lead, problems: i.writer.problems})
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

// addDuties adds those that every leader has, with a cluster or without.
func (i *ingester) addDuties(c *config, known *tenants.Tenants) error {
	keySets, err := newKeySets(c, i.loop, i.store, i.log)
	if err != nil {
		return err
	}
	i.duties = append(newNames(c, i.loop, i.store, i.log), keySets, duty{lead: i.keep}, duty{lead: i.collect}, duty{lead: i.withdraw},
		duty{lead: func(ctx context.Context, epoch kv.Epoch) { known.Lead(ctx, i.store, epoch, i.loop, i.log) }})
	return nil
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
		p.gauges = append(p.gauges, i.clusters.Gauges, func(now time.Time) { obs.KubeAge.Set(i.kube.Age(now).Seconds()) })
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
	defer i.forget() // after Lost: else what is forgotten would be taken out of the store
	i.loop.Gained(epoch)
	defer i.loop.Lost()
	notifying, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	for _, d := range i.duties {
		others.Go(func() { d.lead(notifying, epoch) })
	}
	i.readClusters(notifying, epoch, &others)
	others.Go(func() { i.keepLevel(notifying, epoch, current) })
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
		i.log.Warn("shards cannot be assigned to replicas, trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
}

// collect gathers what the replicas found while this process leads.
func (i *ingester) collect(ctx context.Context, _ kv.Epoch) {
	if err := i.found.Run(ctx, i.store); err != nil {
		i.log.Error("the problems with objects that replicas found are not collected", obs.KeyError, err)
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
