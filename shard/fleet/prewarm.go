package fleet

import (
	"context"
	"time"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Bounds of warming: a replica that could not plan everything in time is ready all the same.
const (
	warmPoll   = 20 * time.Millisecond
	warmFleet  = 3 * time.Second  // to hear of the others
	warmWithin = 20 * time.Second // to plan
	warmScopes = 512
	warmKept   = time.Minute // beyond the ramp, until the proxies are here that hold the plans
)

// warm plans the scopes that this replica will own and then says that it is ready. Prewarmed proxies join for each namespace, one for
// proxies without labels and one for each Sidecar that selects workloads: what their proxies have in common is planned for them,
// and kept until these hold that themselves. Not so for what EnvoyFilters select, nor for other clusters and networks.
func (f *Fleet) warm(ctx context.Context, m *mirror.Mirror, planner *plan.Loop) error {
	if err := until(ctx, func() bool { return m.Ready() == nil }); err != nil {
		return err
	}
	hear, cancel := context.WithTimeout(ctx, warmFleet)
	_ = until(hear, f.replica.Counted) // etcd may be away: then there is nothing to expect
	cancel()
	began := time.Now()
	prewarmed := f.prewarm(ctx, m, planner)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(prewarmed) > 0 {
		f.log.Info("the namespaces that this replica will own are planned", "namespaces", len(prewarmed), "took", time.Since(began))
	}
	f.warmed.Store(true)
	f.member.Ready()
	select {
	case <-time.After(f.cfg.Ramp + warmKept):
	case <-ctx.Done():
	}
	for _, p := range prewarmed {
		p.Leave()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *Fleet) prewarm(ctx context.Context, m *mirror.Mirror, planner *plan.Loop) (prewarmed []*plan.Proxy) {
	planning, cancel := context.WithTimeout(ctx, warmWithin)
	defer cancel()
	for _, node := range prewarmNodes(m.Current(), f.cfg.Domain, f.replica.Expected()) {
		p, err := planner.Join(planning, node, nil)
		if err != nil {
			return prewarmed // out of time, or the loop has ended
		}
		prewarmed = append(prewarmed, p)
	}
	return prewarmed
}

// prewarmNodes are the nodes of prewarmed proxies, all of the config cluster, as those of this version's image are in a mesh whose services have
// that DNS suffix: of each namespace one without labels, in the order given, and then one with the labels that a Sidecar selects, for each that
// selects some; warmScopes of them at most.
func prewarmNodes(s *mirror.Snapshot, domain string, namespaces []string) (nodes []view.Node) {
	add := func(namespace string, labels map[string]string) {
		nodes = append(nodes, view.Node{ID: "warm~~" + namespace, Name: "warm", Namespace: namespace, Labels: labels,
			Domain: domain, Caps: xds.AgentCaps})
	}
	for _, namespace := range namespaces {
		add(namespace, nil)
	}
	for _, namespace := range namespaces {
		for r := range s.In(model.KindSidecar, namespace) {
			if sidecar, ok := r.(*model.Sidecar); ok && len(sidecar.Spec.GetWorkloadSelector().GetLabels()) > 0 {
				add(namespace, sidecar.Spec.GetWorkloadSelector().GetLabels())
			}
		}
	}
	return nodes[:min(len(nodes), warmScopes)]
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
