package main

import (
	"context"

	"golang.org/x/time/rate"

	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/status"
)

// duty is a task that this process performs beside the ingest loop during a term (while it leads). Unused fields are
// nil.
type duty struct {
	begin    func()                                    // called at the start of a term, before lead of any duty
	lead     func(ctx context.Context, epoch kv.Epoch) // performs the duty during one term, until ctx ends
	fit      func(ctx context.Context) error           // waits for a reason to end the term (errUnfit), or for the end of ctx (its error)
	problems func() []object.Problem                   // returns the problems that the duty has found in this term
	origin   *origin.Origin                            // origin of the objects that the duty emits
}

// addDuties adds the leader's duties. Some duties depend on the sources of configuration and on the flags.
func (i *ingester) addDuties(c ingesterConfig, from sources) error {
	keySets, err := newKeySets(c.config, i.loop, i.store, i.log)
	if err != nil {
		return err
	}
	i.duties = append(newNames(c.config, i.loop, i.store, i.log), keySets, duty{lead: i.keeper.Lead}, duty{lead: i.collect},
		duty{lead: func(ctx context.Context, epoch kv.Epoch) { c.tenants.Lead(ctx, i.store, epoch, i.loop, i.log) }})
	if from.cluster == nil || !c.config.env.status {
		i.duties = append(i.duties, duty{lead: i.withdraw})
	}
	var writes *promoted.Writer
	limit, wake := status.NewLimit(), func() {}
	if from.cluster != nil {
		if writes, err = promoted.New(promoted.Config{Store: i.store, Ingester: i.lead, Name: c.config.processName(),
			Lease: c.config.lease, Alone: c.config.dataDir != "", Changed: func() { wake() }, Log: i.log}); err != nil {
			return err
		}
		i.writes = writes.Promoted
		i.duties = append(i.duties, duty{lead: writes.Lead, problems: writes.Problems})
	}
	registered, err := newRegistered(i, c.config, from.cluster, writes, limit)
	if err != nil {
		return err
	}
	i.duties = append(i.duties, registered...)
	if c.config.env.autoAllocate {
		addresses, duties, err := newAutomatic(i, c.config, c.api, from, writes, limit)
		if err != nil {
			return err
		}
		i.duties, i.observers = append(i.duties, duties...), append(i.observers, addresses.Observe)
		wake = func() { addresses.Observe(nil) } // lets the duty check again whether it may assign addresses
	}
	if from.cluster == nil {
		return nil
	}
	return i.addClusterDuties(c, from, writes, limit)
}

// addClusterDuties adds the duties that read Kubernetes clusters or write to the config cluster (the cluster that
// stores the configuration).
func (i *ingester) addClusterDuties(c ingesterConfig, from sources, writes *promoted.Writer, limit *rate.Limiter) error {
	of, emit := from.cluster.Origin(), i.emit
	from.cluster.Settle = func(ctx context.Context) error {
		defer from.clusters.Complete()
		return i.loop.Settle(ctx)
	}
	from.clusters.Settle = i.loop.Settle
	from.clusters.Expect = i.expect
	warnings, err := newWarnings(i, c.config, of, writes, limit)
	if err != nil {
		return err
	}
	i.duties = append(i.duties, duty{lead: warnings.lead, problems: warnings.problems})
	if c.config.env.status {
		statuses, err := newObjectStatus(i, c.config, of, writes, limit)
		if err != nil {
			return err
		}
		i.duties = append(i.duties, duty{begin: statuses.begin, lead: statuses.lead, problems: statuses.problems})
		i.wrote = append(i.wrote, statuses.wrote)
		emit = func(events []object.Event) {
			statuses.observe(events)
			i.emit(events)
		}
	}
	if c.config.writeRootCerts && !c.config.env.foreign() { // another CA publishes its roots itself
		for _, what := range []content{ofRoots, ofLists} {
			one, err := newRootCerts(what, c.config, from.cluster, writes, c.ring, limit, i.log)
			if err != nil {
				return err
			}
			i.duties = append(i.duties, one)
		}
	}
	if c.hooks != nil && c.config.writeWebhooks {
		leader := webhooks.NewLeader(c.hooks, c.api, of, i.lead.Until, limit)
		i.duties = append(i.duties, duty{lead: func(ctx context.Context, epoch kv.Epoch) { leader.Lead(ctx, epoch.Revision) },
			problems: leader.Problems})
	}
	i.duties = append(i.duties, i.rightsDuty(c, of)...)
	i.duties = append(i.duties,
		duty{begin: from.clusters.Incomplete, lead: func(ctx context.Context, _ kv.Epoch) {
			_ = from.cluster.Run(ctx, emit) // its error is the context's
		}, origin: &of},
		duty{lead: func(ctx context.Context, _ kv.Epoch) {
			_ = from.clusters.Run(ctx, i.loop.Emit) // its error is the context's
		}},
		duty{lead: from.clusters.Lead},
		duty{lead: func(ctx context.Context, epoch kv.Epoch) {
			asof.Lead(ctx, i.store, epoch, from.readUntil, i.loop.Settled, i.log)
		}})
	return nil
}

// forget drops the objects that the duties have emitted, after a term. The duties emit all objects again in the next
// term.
func (i *ingester) forget() {
	for _, d := range i.duties {
		if d.origin != nil {
			i.emit([]object.Event{{Op: object.Forget, ID: object.ID{Origin: *d.origin}}})
		}
	}
}
