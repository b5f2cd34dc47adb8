package plan

import (
	"slices"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// membersIn returns the addresses of a cluster's endpoints.
func membersIn(t *testing.T, s *mirror.Snapshot, n view.Node, cluster string) string {
	t.Helper()
	var out []string
	for _, locality := range decode(t, planFor(s, n), xds.Endpoint, cluster, &endpointv3.ClusterLoadAssignment{}).Endpoints {
		for _, e := range locality.LbEndpoints {
			out = append(out, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Services of two clusters with one name are one host. The config cluster's service defines it, its endpoints are those
// of both clusters, and its addresses are those of the service in the proxy's own cluster, or those of the definition
// if that cluster lacks the service.
func TestMergedHost(t *testing.T) {
	here := node("shop", "web")
	there := node("shop", "web")
	there.Cluster = "west"
	elsewhere := node("shop", "web")
	elsewhere.Cluster = "east"
	config := svc(t, "shop/db@5", "10.96.0.1", "tcp:3306:TCP")
	// The other cluster's service is older, but it is not the definition.
	other := of(t, west, svc(t, "shop/db@1", "10.97.0.1", "tcp:3306:TCP", "more:3307:TCP"))
	s := snapshot(config, other, eps(t, "shop/db-1", "{name: tcp, number: 3306}", "10.1.0.1"),
		of(t, west, eps(t, "shop/db-1", "{name: tcp, number: 3306}", "10.2.0.1")))
	const host = "db.shop.svc.cluster.local"
	for _, c := range []struct {
		name     string
		node     view.Node
		listener string
	}{{"of the config cluster", here, "10.96.0.1_3306"}, {"of the other", there, "10.97.0.1_3306"}, {"of one that has no such service", elsewhere, "10.96.0.1_3306"}} {
		set := planFor(s, c.node)
		if set.Types[xds.Listener].Get(c.listener) == nil {
			t.Errorf("a proxy %s has no listener %s: %s", c.name, c.listener, names(set, xds.Listener))
		}
		if got := names(set, xds.Cluster); strings.Contains(got, "3307") || !strings.Contains(got, "outbound|3306||"+host) {
			t.Errorf("a proxy %s has clusters %s", c.name, got)
		}
		if got := membersIn(t, s, c.node, "outbound|3306||"+host); got != "10.1.0.1 10.2.0.1" {
			t.Errorf("a proxy %s has endpoints %q", c.name, got)
		}
	}
	s = s.Apply(2, nil, []model.Key{config.Meta().Key}).New
	if got := names(planFor(s, here), xds.Cluster); !strings.Contains(got, "outbound|3307||"+host) {
		t.Errorf("without the config cluster's service: %s", got)
	}
}

// A workload accepts connections at the ports of its own cluster's services.
func TestWorkloadOfACluster(t *testing.T) {
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), of(t, west, svc(t, "shop/web", "10.97.0.1", "http:81:HTTP")))
	for cluster, want := range map[string]string{"": "inbound|180||", "west": "inbound|181||"} {
		n := node("shop", "web", "app=web")
		n.Cluster = cluster
		if got := names(planFor(s, n), xds.Cluster); !strings.Contains(got, want) || strings.Count(got, "inbound") != 1 {
			t.Errorf("a workload of cluster %q has %s", cluster, got)
		}
	}
}
