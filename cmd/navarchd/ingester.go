package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/source/remote"
	"navarch.io/navarch/store/tenants"
)

// ingesterConfig is what role ingest is made of.
type ingesterConfig struct {
	config    *config
	log       *slog.Logger
	store     *kv.Store
	sealer    ingest.Sealer   // nil: there is no key encryption key
	others    remote.Config   // how other clusters are found
	seen      func() kv.Place // how far this process has read the chain of heads
	tenants   *tenants.Tenants
	committed func(revision int64, event, began time.Time, batch kv.Batch) // called of each batch
	api       *apiserver.Client                                            // of the config cluster; nil: there is none
	read      func() time.Time                                             // up to when the config cluster was read, by whichever leader
	ring      *keyring.Keyring                                             // has the roots of the mesh; nil: this process does not follow it
	hooks     *webhooks.Configurations                                     // those of the cluster; nil: there are none, or they are not known
}

// ingester is the role ingest: the leader's loop, the election, and what the leader does beside them. Which sources there are, and what else, only its
// constructor asks: what is not there is not in its lists, and no field is nil.
type ingester struct {
	log       *slog.Logger
	store     *kv.Store
	committed func(revision int64, event, began time.Time, batch kv.Batch) // called of each batch
	loop      *ingest.Loop
	lead      *lead.Elector
	keeper    *removals.Keeper
	found     *problems.Collector       // what the replicas found, while this process leads
	duties    []duty                    // while this process leads
	tasks     []loop.Task               // whoever leads
	problems  []func() []object.Problem // of the sources
	gauges    []func(time.Time)         // of the sources
	observers []func([]object.Event)    // get what the folder and the config cluster emit, before the loop does
	wrote     []func(revision int64)    // get the revision of each batch
	read      func() time.Time          // up to when the records have the config cluster, whoever leads
	writes    func() bool               // this process writes to Kubernetes
	alone     string                    // the one replica that there can be when the first term begins (embedded etcd); empty: there may be others
}

// newIngester makes the role, and asks nothing yet. Errors name flags.
func newIngester(c ingesterConfig) (*ingester, error) {
	from, err := newSources(c.config, c.others, c.log)
	if err != nil {
		return nil, err
	}
	embedded := c.config.dataDir != ""
	elector, err := lead.New(lead.Config{Store: c.store, Name: c.config.processName(), Lease: c.config.lease, Logger: c.log, Alone: embedded})
	if err != nil {
		return nil, err
	}
	i := &ingester{log: c.log, store: c.store, committed: c.committed, read: c.read, writes: func() bool { return false }, lead: elector, found: problems.NewCollector(c.log)}
	if embedded {
		i.alone = c.config.processName()
	}
	options := ingest.Options{AllowEmpty: c.config.allowNone, HeldFor: c.config.heldFor, Budget: c.config.budget, Normal: c.config.normal(), Sources: from.origins(c.config), Remote: from.clusters != nil}
	var referred func([]object.Reference)
	if from.cluster != nil {
		options.SecretUses, referred = secretUses, from.refer
	}
	i.loop = ingest.New(ingest.Config{
		Store: c.store, Sealer: c.sealer, Seen: c.seen, Log: c.log, Committed: i.committedBatch, Options: options, Referred: referred,
	})
	i.keeper = &removals.Keeper{Store: c.store, Loop: i.loop, Name: c.config.processName(), Log: c.log}
	i.addSources(c, from)
	return i, i.addDuties(c, from)
}

// committedBatch is the loop's hook.
func (i *ingester) committedBatch(revision int64, event, began time.Time, batch kv.Batch) {
	i.committed(revision, event, began, batch)
	i.log.Debug("batch stored", obs.KeyRevision, revision, obs.KeyRecords, len(batch.Puts), "removed", len(batch.Deletes), obs.KeyTook, time.Since(began))
	for _, wrote := range i.wrote {
		wrote(revision)
	}
}

// emit is where the folder and the config cluster emit to.
func (i *ingester) emit(events []object.Event) {
	for _, observe := range i.observers {
		observe(events)
	}
	i.loop.Emit(events)
}

// expect takes which other clusters there are; known: these are all.
func (i *ingester) expect(all []origin.Origin, known bool) {
	i.loop.Expect(ingest.Remotes{Known: known, Origins: all})
}

// objectsOfBurst is how many objects are read, or records written, in a burst that is worth tidying up after, as when a cluster is listed; edits are far from it.
const objectsOfBurst = 10_000

// came counts these: where a cluster is listed the records are written after that, for a minute or so, and leave as much behind.
func came(s ingest.Stats) memory.Counts {
	return memory.Counts{Bursts: (s.Normalised + s.Puts + s.Deletes) / objectsOfBurst, Edits: s.Normalised + s.Batches}
}

// part is what the role adds to its process.
func (i *ingester) part() part {
	tasks := []loop.Task{
		{Name: "ingest", Run: i.loop.Run},
		{Name: "lead", Run: func(ctx context.Context) error { return i.lead.Run(ctx, i.leads) }},
		{Name: "problems", Run: i.logProblems},
	}
	return part{tasks: append(tasks, i.tasks...), gauges: i.gauges, counts: []func() memory.Counts{func() memory.Counts { return came(i.loop.Stats()) }}}
}

// shown is what /debug shows of the role; commits are the newest of this process.
func (i *ingester) shown(commits func() []inspect.Commit) *debug.Objects {
	return &debug.Objects{Sources: i.sourceProblems, Loop: i.loop.Problems, Total: i.loop.ProblemCount, Found: i.found, Commits: commits, Leader: i.leader}
}

// leader is the page of the election.
func (i *ingester) leader(ctx context.Context) (inspect.Leader, error) {
	name, epoch, err := i.lead.Leader(ctx)
	if err != nil {
		return inspect.Leader{}, err
	}
	l := inspect.Leader{Name: name, Revision: i.store.RevisionName(), Epoch: epoch.Revision, Read: i.read()}
	if own, leads := i.lead.Epoch(); leads && own == epoch {
		l.Self, l.Settled, l.Writes = true, i.loop.Settled(), i.writes()
	}
	return l, nil
}

// leads is one term.
func (i *ingester) leads(ctx context.Context, epoch kv.Epoch) error {
	ctx, unfit := context.WithCancelCause(ctx)
	defer unfit(nil)
	obs.Leading.Set(1)
	defer obs.Leading.Set(0)
	current, err := i.level(ctx)
	if err != nil {
		return err
	}
	held, err := i.keeper.Recall(ctx)
	if err != nil {
		return fmt.Errorf("removals that the leader before held: %w", err)
	}
	defer i.forget() // after Lost: else what is forgotten would be taken out of the store
	i.loop.Gained(epoch, held...)
	defer i.loop.Lost()
	term, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	for _, d := range i.duties {
		if d.begin != nil {
			d.begin()
		}
	}
	for _, d := range i.duties {
		if d.lead != nil {
			others.Go(func() { d.lead(term, epoch) })
		}
		if d.fit != nil {
			others.Go(func() { unfit(d.fit(term)) })
		}
	}
	others.Go(func() { i.keepLevel(term, epoch, current) })
	defer func() { stop(); others.Wait() }()
	for {
		alone := i.alone
		i.alone = ""
		err := place.Lead(ctx, epoch, place.LeaderConfig{Store: i.store, Log: i.log, Alone: alone,
			Wrote: func(_ *ring.Ring, moved int) { obs.RingMoved.Add(float64(moved)) }})
		switch {
		case errors.Is(context.Cause(ctx), errUnfit):
			return context.Cause(ctx) // the election's log says it
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
