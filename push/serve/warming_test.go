package serve

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/xds"
)

// warmer is a client that acknowledges all responses but those with clusters.
type warmer struct {
	*client
	clusters []*discoveryv3.DeltaDiscoveryResponse
}

// until reads responses until one has the resource, and returns the time that this took.
func (w *warmer) until(t xds.Type, name string) time.Duration {
	w.t.Helper()
	began := time.Now()
	for {
		r := w.next()
		if r.TypeUrl == xds.Cluster.URL() {
			w.clusters = append(w.clusters, r)
		} else {
			w.ack(r)
		}
		if r.TypeUrl == t.URL() && slices.ContainsFunc(r.Resources, func(one *discoveryv3.Resource) bool { return one.Name == name }) {
			return time.Since(began)
		}
	}
}

// Unacknowledged clusters end no stream. In each of 20 edits that add a service and a policy, the policy is sent at
// once, and the routes that name the clusters after their waiting time.
func TestUnacknowledgedClusters(t *testing.T) {
	const port = 80
	p := newPlanner(cluster("one"), endpoints("one", "10.0.0.1:80"), listen("in", port, "r"), paths("r", "one"))
	s, addr := start(t, Config{Planner: p, AckDeadline: time.Second})
	w := &warmer{client: dial(t, addr)}
	w.ask(xds.Cluster)
	w.until(xds.Cluster, "one")
	w.ask(xds.Endpoint, "one")
	w.until(xds.Endpoint, "one")
	w.ack(w.clusters[0])
	w.ask(xds.Listener)
	w.until(xds.Listener, "in")
	w.ask(xds.Route, "r")
	w.until(xds.Route, "r")
	names := []string{"one"}
	for i := range 20 {
		name := fmt.Sprintf("s%d", i)
		names = append(names, name)
		p.put(warmsForEver(t, name), paths("r", names...), listen("in", port, "r", denies("/"+name)))
		if took := w.until(xds.Listener, "in"); took > 2*time.Second {
			t.Fatalf("policy %d after %v", i, took)
		}
	}
	began := time.Now()
	for len(names) > 0 { // until the newest routes arrive
		r := w.next()
		if r.TypeUrl != xds.Route.URL() {
			continue
		}
		w.ack(r)
		if slices.ContainsFunc(r.Resources, func(one *discoveryv3.Resource) bool { return one.Version == paths("r", names...).Version }) {
			break
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the routes after %v", took)
	}
	i := s.Inspect()
	if len(i) != 1 || time.Since(i[0].Warming.Since) < s.cfg.AckDeadline || len(i[0].Warming.Clusters) != 20 || i[0].Types[xds.Cluster].InFlight < 2 {
		t.Fatalf("streams: %+v", i)
	}
	p.put(listen("in", port, "r", denies("/last")))
	w.until(xds.Listener, "in")
}
