package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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

// ingesterConfig configures role ingest.
type ingesterConfig struct {
	config    *config
	log       *slog.Logger
	store     *kv.Store
	sealer    ingest.Sealer   // nil: there is no key encryption key
	others    remote.Config   // configures the discovery of other clusters
	seen      func() kv.Place // newest state of the store that this process has read
	tenants   *tenants.Tenants
	committed func(revision int64, event, began time.Time, batch kv.Batch) // called for each batch
	api       *apiserver.Client                                            // of the config cluster; nil: no such cluster
	read      func() time.Time                                             // time up to which any leader has read the config cluster
	// ring has the roots of the mesh; nil: this process does not read the keyring
	ring  *keyring.Keyring
	hooks *webhooks.Configurations // webhook configurations of the cluster; nil: they are not read
}

// ingester is role ingest: the ingest loop, the leader election, and the duties (tasks that run while this process
// leads). The configuration determines the sources and the duties, so lists may be empty. Fields other than lists are
// not nil.
type ingester struct {
	log       *slog.Logger
	store     *kv.Store
	committed func(revision int64, event, began time.Time, batch kv.Batch) // called for each batch
	loop      *ingest.Loop
	lead      *lead.Elector
	keeper    *removals.Keeper
	found     *problems.Collector       // problems that the replicas found, while this process leads
	duties    []duty                    // performed while this process leads
	tasks     []loop.Task               // run whether or not this process leads
	problems  []func() []object.Problem // of the sources
	gauges    []func(time.Time)         // of the sources
	observers []func([]object.Event)    // receive events of the folder and the config cluster before the loop
	wrote     []func(revision int64)    // receive the revision of each batch
	newest    atomic.Int64              // revision of the newest batch
	read      func() time.Time          // time up to which any leader has read the config cluster
	writes    func() bool               // reports whether this process writes to Kubernetes
	alone     string                    // name of this process as the only replica (embedded etcd), until its first term begins
}

// newIngester returns an ingester without sending a request. Most errors name flags.
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
	i := &ingester{log: c.log, store: c.store, committed: c.committed,
		read: c.read, writes: func() bool { return false }, lead: elector, found: problems.NewCollector(c.log)}
	if embedded {
		i.alone = c.config.processName()
	}
	options := ingest.Options{AllowEmpty: c.config.allowNone, HeldFor: c.config.heldFor,
		SecretUses: secretUses,
		Budget:     c.config.budget, Normal: c.config.normal(), Sources: from.origins(c.config), Remote: from.clusters != nil}
	var referred func([]object.Reference)
	if from.cluster != nil {
		referred = from.refer
	}
	i.loop = ingest.New(ingest.Config{
		Store: c.store, Sealer: c.sealer, Seen: c.seen, Log: c.log, Committed: i.committedBatch, Options: options, Referred: referred,
	})
	i.keeper = &removals.Keeper{Store: c.store, Loop: i.loop, Name: c.config.processName(), Log: c.log}
	i.addSources(c, from)
	return i, i.addDuties(c, from)
}

// committedBatch is called for each batch that the loop has committed. It calls i.committed and the functions in
// i.wrote. event is the time of the batch's oldest event, and began is the start of the commit.
func (i *ingester) committedBatch(revision int64, event, began time.Time, batch kv.Batch) {
	i.committed(revision, event, began, batch)
	i.log.Debug("batch stored", obs.KeyRevision, revision, obs.KeyRecords,
		len(batch.Puts), "removed", len(batch.Deletes), obs.KeyTook, time.Since(began))
	i.newest.Store(revision)
	for _, wrote := range i.wrote {
		wrote(revision)
	}
}

// emit passes events of the folder and the config cluster to the observers, and then to the loop.
func (i *ingester) emit(events []object.Event) {
	for _, observe := range i.observers {
		observe(events)
	}
	i.loop.Emit(events)
}

// expect sets the origins of the other clusters. If known is true, the list is complete.
func (i *ingester) expect(all []origin.Origin, known bool) {
	i.loop.Expect(ingest.Remotes{Known: known, Origins: all})
}

// objectsOfBurst is the amount of work that counts as one burst: the number of objects read, plus the number of records
// written or deleted. Memory is returned to the system after bursts. Listing a cluster causes bursts.
const objectsOfBurst = 10_000

// countWork converts the loop's statistics to counts of bursts and edits. Written records count like read objects,
// because writing them leaves as much garbage.
func countWork(s ingest.Stats) memory.Counts {
	return memory.Counts{Bursts: (s.Normalised + s.Puts + s.Deletes) / objectsOfBurst, Edits: s.Normalised + s.Batches}
}

// part returns the tasks, the metrics and the counts of the role.
func (i *ingester) part() part {
	tasks := []loop.Task{
		{Name: "ingest", Run: i.loop.Run},
		{Name: "lead", Run: func(ctx context.Context) error { return i.lead.Run(ctx, i.leads) }},
		{Name: "problems", Run: i.logProblems},
	}
	return part{tasks: append(tasks, i.tasks...), gauges: i.gauges,
		counts: []func() memory.Counts{func() memory.Counts { return countWork(i.loop.Stats()) }}}
}

// shown returns the role's data for /debug. The argument commits returns this process's newest commits.
func (i *ingester) shown(commits func() []inspect.Commit) *debug.Objects {
	return &debug.Objects{Sources: i.sourceProblems, Loop: i.loop.Problems,
		Total: i.loop.ProblemCount, Found: i.found, Commits: commits, Leader: i.leader}
}

// leader reads the present leader from etcd, and returns the content of the page /debug/leader. Errors are etcd's.
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

// leads runs one term (time as leader) until ctx ends, and then returns nil. An error reports that ctx ended before the
// level (the format version of the store) was read, or that the held removals cannot be read. errUnfit means that a
// duty found this process unfit to lead. kv.ErrDeposed means that another process leads.
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
		return fmt.Errorf("held removals of the previous leader: %w", err)
	}
	defer i.forget() // runs after Lost: earlier, the loop would delete the forgotten objects from the store
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
			return context.Cause(ctx) // the election logs it
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kv.ErrDeposed):
			return err
		}
		i.log.Warn("shards cannot be assigned to replicas, trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
}

// collect reads the problems that replicas publish, until ctx ends. An error is logged.
func (i *ingester) collect(ctx context.Context, _ kv.Epoch) {
	if err := i.found.Run(ctx, i.store); err != nil {
		i.log.Error("the replicas' problems with objects are not collected", obs.KeyError, err)
	}
}
