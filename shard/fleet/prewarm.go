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

// Bounds of warming. In warming, a new replica plans (computes) the configuration of expected proxies before it is
// ready. It becomes ready after these times even if it could not plan everything.
const (
	warmPoll   = 20 * time.Millisecond
	warmFleet  = 3 * time.Second  // to receive the records of all replicas
	warmWithin = 20 * time.Second // to plan the prewarmed proxies
	warmScopes = 512              // maximum number of prewarmed proxies
	warmKept   = time.Minute      // time after the ramp (Config.Ramp) until the prewarmed proxies leave
)

// warm plans configuration for expected proxies, and then declares the replica ready. It joins prewarmed proxies to the
// planner. A prewarmed proxy exists only in this process. There is one without labels for each namespace, and one for
// each Sidecar with a workload selector. They keep the planned configuration in memory until real proxies share it.
func (f *Fleet) warm(ctx context.Context, m *mirror.Mirror, planner *plan.Loop) error {
	if err := until(ctx, func() bool { return m.Ready() == nil }); err != nil {
		return err
	}
	hear, cancel := context.WithTimeout(ctx, warmFleet)
	heard := until(hear, f.replica.Counted) == nil // if etcd is away, no namespaces are expected
	cancel()
	began := time.Now()
	prewarmed := f.prewarm(ctx, m, planner)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(prewarmed) > 0 {
		f.log.Info("the namespaces that this replica will own are planned", "scopes", len(prewarmed), "took", time.Since(began))
	}
	f.ready(ctx, heard)
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

// ready declares the replica ready, first in its member record, and at the end in Fleet.Ready. heard states that the
// records of all replicas are known. If heard is true, ready waits until the level (format version) of the stored
// configuration is compared with the levels that this build reads. The wait takes at most warmFleet.
func (f *Fleet) ready(ctx context.Context, heard bool) {
	f.member.Ready()
	if heard {
		compare, cancel := context.WithTimeout(ctx, warmFleet)
		defer cancel()
		_ = until(compare, f.member.Compared)
	}
	f.warmed.Store(true)
}

// prewarm joins prewarmed proxies to the planner, and returns those that were planned within warmWithin.
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

// prewarmNodes returns the nodes of prewarmed proxies, at most warmScopes. The nodes belong to the config cluster. They
// have this version's capabilities and the DNS suffix domain. The first nodes have no labels, one for each namespace in
// the given order. The following nodes have the labels that a Sidecar selects, one for each Sidecar with a workload
// selector.
func prewarmNodes(s *mirror.Snapshot, domain string, namespaces []string) (nodes []view.Node) {
	// Injection copies this metadata from the mesh configuration to proxies. With DNS capture, a proxy's configuration
	// includes automatically allocated addresses.
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

// until calls done repeatedly until done returns true. If ctx ends first, until returns the error of ctx.
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
