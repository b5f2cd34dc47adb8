package main

import (
	"context"

	"golang.org/x/time/rate"

	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/status"
)

// duty is something that the leader does beside the loop. What it leaves out is nil: nobody asks which duties there are.
type duty struct {
	begin    func()                                    // before any duty of a term; nil: nothing is to be done
	lead     func(ctx context.Context, epoch kv.Epoch) // one term; it returns when ctx ends
	problems func() []object.Problem                   // those of this process's term
	origin   *origin.Origin                            // of objects that it emits: when a term ends they are forgotten, and the next term begins again
}

// addDuties adds what the leader does: what every leader does, and what follows from the sources and the flags.
func (i *ingester) addDuties(from sources) error {
	c := i.config
	keySets, err := newKeySets(c, i.loop, i.store, i.log)
	if err != nil {
		return err
	}
	i.duties = append(newNames(c, i.loop, i.store, i.log), keySets, duty{lead: i.keep}, duty{lead: i.collect},
		duty{lead: func(ctx context.Context, epoch kv.Epoch) { i.tenants.Lead(ctx, i.store, epoch, i.loop, i.log) }})
	if from.cluster == nil || !c.env.status {
		i.duties = append(i.duties, duty{lead: i.withdraw})
	}
	var writes *kubernetesWriter
	limit, wake := status.NewLimit(), func() {}
	if from.cluster != nil {
		if writes, err = newKubernetesWriter(c, i.store, i.lead, func() { wake() }, i.log); err != nil {
			return err
		}
		i.duties = append(i.duties, duty{lead: writes.lead, problems: writes.problems})
	}
	registered, err := newRegistered(i, from.cluster, writes, limit)
	if err != nil {
		return err
	}
	i.duties = append(i.duties, registered...)
	if c.env.autoAllocate {
		addresses, err := newAutomatic(i, from, writes, limit)
		if err != nil {
			return err
		}
		i.duties, i.observers = append(i.duties, addresses.duty()), append(i.observers, addresses.leader.Observe)
		wake = func() { addresses.leader.Observe(nil) } // it looks again at whether it may give addresses
	}
	if from.cluster == nil {
		return nil
	}
	return i.addClusterDuties(from, writes, limit)
}

// addClusterDuties adds what the leader does where the configuration comes from Kubernetes: it reads clusters, and writes to the config cluster.
func (i *ingester) addClusterDuties(from sources, writes *kubernetesWriter, limit *rate.Limiter) error {
	c, of, emit := i.config, from.cluster.Origin(), i.emit
	from.cluster.Settle = func(ctx context.Context) error {
		defer from.clusters.Complete()
		return i.loop.Settle(ctx)
	}
	from.clusters.Settle = i.loop.Settle
	from.clusters.Expect = i.expect
	if c.env.status {
		statuses, err := newObjectStatus(i, of, writes, limit)
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
	if c.writeRootCerts && !c.env.foreign() { // whoever signs has the roots
		for _, what := range []content{ofRoots, ofLists} {
			one, err := newRootCerts(what, c, from.cluster, writes, i.ring, limit, i.log)
			if err != nil {
				return err
			}
			i.duties = append(i.duties, duty{lead: one.lead, problems: one.problems})
		}
	}
	if i.hooks != nil && c.writeWebhooks {
		leader := webhooks.NewLeader(i.hooks, i.api, of, i.lead.Until, limit)
		i.duties = append(i.duties, duty{lead: func(ctx context.Context, epoch kv.Epoch) { leader.Lead(ctx, epoch.Revision) }, problems: leader.Problems})
	}
	i.duties = append(i.duties,
		duty{begin: from.clusters.Incomplete, lead: func(ctx context.Context, _ kv.Epoch) { _ = from.cluster.Run(ctx, emit) }, origin: &of}, // its error is the context's
		duty{lead: func(ctx context.Context, _ kv.Epoch) { _ = from.clusters.Run(ctx, i.loop.Emit) }},                                       // its error is the context's
		duty{lead: func(ctx context.Context, epoch kv.Epoch) {
			asof.Lead(ctx, i.store, epoch, from.readUntil, i.loop.Settled, i.log)
		}})
	return nil
}

// forget drops what the duties of a term have emitted, and what they have read of the cluster. Only the leader reads that, and the next term begins again.
func (i *ingester) forget() {
	for _, d := range i.duties {
		if d.origin != nil {
			i.emit([]object.Event{{Op: object.Forget, ID: object.ID{Origin: *d.origin}}})
		}
	}
}
