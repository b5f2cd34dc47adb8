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

// Bounds of warming. A replica that could not plan everything in time becomes ready all the same.
const (
	warmPoll   = 20 * time.Millisecond
	warmFleet  = 3 * time.Second  // to receive the fleet
	warmWithin = 20 * time.Second // to plan
	warmScopes = 512
	warmKept   = time.Minute // beyond the ramp, until the real proxies hold the plans
)

// warm plans the scopes that this replica will own, and then declares it ready. It joins prewarmed proxies: for each
// namespace one without labels, and one for each Sidecar with a workload selector. They hold the shared plans until the
// real proxies do. Workload selectors of EnvoyFilters, other clusters and other networks are not prewarmed.
func (f *Fleet) warm(ctx context.Context, m *mirror.Mirror, planner *plan.Loop) error {
	if err := until(ctx, func() bool { return m.Ready() == nil }); err != nil {
		return err
	}
	hear, cancel := context.WithTimeout(ctx, warmFleet)
	_ = until(hear, f.replica.Counted) // etcd may be away: then nothing is expected
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

// prewarmNodes returns the nodes of prewarmed proxies, at most warmScopes. They belong to the config cluster and have
// this version's capabilities and the mesh's DNS suffix. First comes a node without labels for each namespace, in the
// order given. Then come nodes with the labels that each Sidecar selects.
func prewarmNodes(s *mirror.Snapshot, domain string, namespaces []string) (nodes []view.Node) {
	// Injection passes the mesh's metadata to proxies: with DNS in the agent their scope has automatic addresses.
	metadata := map[string]string{"DNS_CAPTURE": s.Mesh().Spec.GetDefaultConfig().GetProxyMetadata()["ISTIO_META_DNS_CAPTURE"]}
	add := func(namespace string, labels map[string]string) {
		nodes = append(nodes, view.Node{ID: "warm~~" + namespace, Name: "warm", Namespace: namespace, Labels: labels, Metadata: metadata,
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

// until polls until done returns true. It returns the error of ctx.
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
