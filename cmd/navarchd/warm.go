package main

import (
	"context"
	"time"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
)

// Bounds of warming: a replica that could not plan everything in time is ready all the same.
const (
	warmPoll   = 20 * time.Millisecond
	warmFleet  = 3 * time.Second  // to hear of the others
	warmWithin = 20 * time.Second // to plan
	warmScopes = 512
	warmKept   = time.Minute // beyond the ramp, until the proxies are here that hold the plans
)

// warm plans the scopes that this replica will own and then says that it is ready. A stand-in joins for each namespace: what
// its own proxies have in common is planned for it, and kept until they hold that themselves.
func (f *fleet) warm(ctx context.Context, m *mirror.Mirror, planner *plan.Loop) error {
	if err := until(ctx, func() bool { return m.Ready() == nil }); err != nil {
		return err
	}
	hear, cancel := context.WithTimeout(ctx, warmFleet)
	_ = until(hear, f.replica.Counted) // etcd may be away: then there is nothing to expect
	cancel()
	began := time.Now()
	stand := f.standIns(ctx, planner)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(stand) > 0 {
		f.log.Info("warm", "namespaces", len(stand), "took", time.Since(began))
	}
	f.warmed.Store(true)
	f.member.Ready()
	select {
	case <-time.After(f.config.ramp + warmKept):
	case <-ctx.Done():
	}
	for _, p := range stand {
		p.Leave()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fleet) standIns(ctx context.Context, planner *plan.Loop) (stand []*plan.Proxy) {
	planning, cancel := context.WithTimeout(ctx, warmWithin)
	defer cancel()
	expected := f.replica.Expected()
	for _, namespace := range expected[:min(len(expected), warmScopes)] {
		p, err := planner.Join(planning, view.Node{ID: "warm~~" + namespace, Name: "warm", Namespace: namespace,
			Domain: view.DefaultDomain, Cluster: f.config.cluster, Caps: xds.StockCaps | xds.CapIdentity}, nil)
		if err != nil {
			return stand // out of time, or the loop has ended
		}
		stand = append(stand, p)
	}
	return stand
}

// until polls; the error is the context's.
func until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(warmPoll)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
