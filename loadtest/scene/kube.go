package scene

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"navarch.io/navarch/loadtest/cluster"
	"navarch.io/navarch/loadtest/mesh"
)

// Rows of scenarios in a cluster. Latencies of edits are measured from the API server's answer.
const (
	rowKubeReady  = "start to ready"
	rowLeaderRSS  = "leader, RSS"
	rowLeaderRoll = "leader, CPU per 1,000 Pod changes"
	rowTakeover   = "leader killed to last ACK"

	rowInjection  = "injection at 200 reviews/s, p99"
	rowFlooded    = "injection at 200 reviews/s beside a flood of reviews from another host, p99"
	rowValidation = "validation at 200 reviews/s, p99"

	rowStatusWrites = "status writes while proxies come and go"

	rowClustersRSS = "leader with all clusters, RSS"
	rowClustersCPU = "leader with all clusters, at rest"
)

// leaderLease is navarchd's default for --leader-lease.
const leaderLease = 10 * time.Second

// kubernetes are the scenarios whose configuration is in a real API server, without kubelets and controllers.
var kubernetes = []Scenario{
	{Name: "kube-virtualservice", Title: "a cluster of 1,000 services and 4,000 Pods: a VirtualService is edited, 1,000 proxies see it",
		World: "world-a", Proxies: 1000, kube: true,
		change: pods(4), run: oneVirtualService, Limit: 15 * time.Minute, Targets: map[string]Target{rowKubeReady: {Value: 3},
			rowEdit: {Value: 600}}},
	{Name: "kube-virtualservices-50", Title: "50 VirtualServices are applied one after the other, 1,000 proxies see them",
		World: "world-a", Proxies: 1000, kube: true,
		change: pods(4), run: fiftyVirtualServices, Limit: 15 * time.Minute, Targets: map[string]Target{rowKubeReady: {Value: 3},
			rowPushes: {Value: 2}}},
	{Name: "kube-endpoint", Title: "an EndpointSlice changes, 2,000 proxies see it", World: "world-a", Proxies: 2000, kube: true,
		change: pods(4), run: endpointEdit, Limit: 15 * time.Minute, Targets: map[string]Target{rowEdit: {Value: 150}}},
	{Name: "kube-leader", Title: "a cluster of 20,000 Pods: the leader's memory, Pods are replaced, the leader is killed",
		World: "world-a", Proxies: 200, Replicas: 2, kube: true,
		change: pods(20), run: kubeLeader, Limit: 25 * time.Minute, Targets: map[string]Target{
			rowLeaderRSS: {Value: 200}, rowLeaderRoll: {Value: 1}, rowTakeover: {Value: (2*leaderLease + 5*time.Second).Seconds()},
		}},
	{Name: "kube-webhooks", Title: "200 reviews a second, of Pods that get a proxy and of Istio's objects",
		World: "world-a", Proxies: 100, kube: true, webhooks: true,
		change: reviewed, run: webhooks, Limit: 15 * time.Minute, Targets: map[string]Target{rowInjection: {Value: 20},
			rowFlooded: {Value: 1000}, rowValidation: {Value: 20}}},
	{Name: "kube-reviews",
		Title: "20 objects a second are made through the API server, beside each attack on the webhooks that it asks, from four " +
			"sources and by a tenant, and all at once",
		World: "world-a", Proxies: 50, kube: true, webhooks: true,
		change: reviewed, run: besideReviews, Limit: 15 * time.Minute, Targets: reviewTargets()},
	{Name: "kube-status", Title: "10,000 proxies come and go for 10 minutes while nothing changes",
		World: "world-a", Proxies: 10000, Replicas: 2, kube: true, env: []string{"PILOT_ENABLE_STATUS=true"},
		change: routed, run: kubeStatus, Limit: 40 * time.Minute, Targets: map[string]Target{rowStatusWrites: {Value: 0}}},
	{Name: "kube-clusters",
		Title: "50 clusters of 300 services and 4,000 endpoints: 5 real API servers, one after the other, and 45 that are " +
			"replayed", World: "world-a", Proxies: 100, Replicas: 2, kube: true,
		change: oneOfMany, run: kubeClusters, Limit: 40 * time.Minute, Targets: map[string]Target{rowClustersRSS: {Value: 1000},
			rowClustersCPU: {Value: .25}}},
}

// pods returns a change of settings: twice as many services, with `each` Pods.
func pods(each int) func(*mesh.Settings) {
	return func(s *mesh.Settings) { s.Services, s.Pods = 2*s.Services, each }
}

// plane starts a control plane, and writes the mesh to it instead of to a folder.
func (s *stage) plane(base string) (err error) {
	if !s.scenario.kube {
		return nil
	}
	s.enter("starting a control plane")
	dir := filepath.Join(base, "kube")
	if err := makeDir(dir); err != nil {
		return err
	}
	if s.cluster, err = cluster.Start(dir); err != nil {
		return err
	}
	s.enter("writing the mesh to the API server")
	if err := s.cluster.Fill(s.ctx, s.mesh.Files()); err != nil {
		return err
	}
	s.churn.By(func(files iter.Seq2[string, []byte]) (time.Time, error) { return s.cluster.Put(s.ctx, files) })
	if len(s.Etcd) == 0 && s.scenario.Replicas > 1 { // an embedded one would die with its leader
		s.Etcd = []string{s.cluster.Etcd()}
	}
	return nil
}

// kubeLeader measures the leader's process, which neither serves proxies nor has etcd.
func kubeLeader(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	leader := []*Server{s.writer}
	_, peak := usage(leader)
	if _, err := s.settledMemory(peak); err != nil {
		return err
	}
	_, rss := usage(leader)
	s.row(rowLeaderRSS, "MB", mb(rss))
	second, err := s.starter.start("ingest-2", append(s.starter.store(), append(s.starter.source(), "--roles", "ingest")...)...)
	if err != nil {
		return err
	}
	if err := s.pause("a second ingester starts", 3*time.Second); err != nil {
		return err
	}
	s.enter("Pods are replaced")
	before := spent(leader)
	changed, err := s.cluster.Roll(s.ctx, max(10, int(334*s.Scale)))
	if err != nil {
		return err
	}
	if _, err := s.rest(spent(s.watched())); err != nil {
		return err
	}
	s.row(rowLeaderRoll, "s", (spent(leader)-before).Seconds()*1000/float64(changed))
	return s.takeover(second)
}

// takeover kills the leader, changes an endpoint, and waits until all proxies have acknowledged that change through the
// next leader.
func (s *stage) takeover(second *Server) error {
	s.enter("the leader is killed")
	e := s.churn.ToggleReadiness(s.seen())
	probe, err := s.fleet.Watch(s.watches(e))
	if err != nil {
		return err
	}
	killed := time.Now()
	s.writer.kill()
	s.writer = second
	if _, err := e.Apply(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, 4*leaderLease)
	defer cancel()
	if err := probe.Await(ctx); err != nil {
		return err
	}
	o, err := probe.Outcome(killed)
	if err != nil {
		return err
	}
	if o.Expected == 0 || o.Acked < o.Expected {
		return fmt.Errorf("%s: %d of %d ACKs came within %v", e.What, o.Acked, o.Expected, 4*leaderLease)
	}
	s.row(rowTakeover, "s", o.Ack.Max().Seconds())
	return nil
}
