package main

import (
	"net/netip"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// networksFor is for how long the networks that were found in a snapshot are gone by.
const networksFor = 10 * time.Second

// scopes is what a proxy may name to be planned for apart from others: cluster, network and DNS domain of its node. Views are
// made by these, so that names which proxies invent must make none (issue 12, item 9).
type scopes struct {
	cluster  string // of the configuration (--cluster-id)
	domain   string // DNS suffix of services
	snapshot func() *mirror.Snapshot
	now      func() time.Time
	clients  *obs.Sampled

	mu       sync.Mutex // a leaf: guards what follows
	networks map[string]bool
	at       time.Time // when they were found
}

// settle has a node name what is known. A network that the configuration has no endpoint of, and another DNS domain than that of
// the services, are as if they had not been named. A cluster that is not known waits: the error is a gRPC status that names it,
// and the client tries again. So does one that is not the cluster whose keys verified the proxy's token.
func (s *scopes) settle(c serve.Client, node *view.Node) error {
	if node.Cluster == "" {
		node.Cluster = s.cluster
	}
	switch {
	case c.Cluster != "" && node.Cluster != c.Cluster:
		return status.Errorf(codes.PermissionDenied, "node.metadata.CLUSTER_ID: the proxy says that it is of cluster %q, and its token is of cluster %q", node.Cluster, c.Cluster)
	case node.Cluster != s.cluster && node.Cluster != c.Cluster:
		return status.Errorf(codes.Unavailable, "node.metadata.CLUSTER_ID: cluster %q is not known here; this is the configuration of cluster %q", node.Cluster, s.cluster)
	}
	if node.Domain != s.domain {
		s.unknown("domain", node.Domain, c)
		node.Domain = s.domain
	}
	if node.Network != "" && !s.knows(node.Network) {
		s.unknown("network", node.Network, c)
		node.Network = ""
	}
	return nil
}

// unknown reports what a node names.
func (s *scopes) unknown(what, name string, c serve.Client) {
	obs.UnknownScopes.WithLabelValues(what).Inc()
	s.clients.Warn("a proxy names something that is not known; it is served as if it had not", what, obs.KeyNode, c.ID, obs.KeyPeer, c.Addr,
		obs.KeyIdentity, c.Identity, obs.KeyName, name)
}

// knows says whether an endpoint or a workload of the configuration is of a network. One that is there for less than networksFor may be missed.
func (s *scopes) knows(network string) bool {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.networks == nil || now.Sub(s.at) >= networksFor {
		s.networks, s.at = networksOf(s.snapshot()), now
	}
	return s.networks[network]
}

func networksOf(snapshot *mirror.Snapshot) map[string]bool {
	found := map[string]bool{}
	for r := range snapshot.All(model.KindEndpoints) {
		for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
			found[e.GetNetwork()] = true
		}
	}
	for r := range snapshot.All(model.KindWorkload) {
		found[r.(*model.Workload).Spec.GetEndpoint().GetNetwork()] = true
	}
	return found
}

// workloads finds the addresses of the workloads that the configuration knows of an identity: Pods, WorkloadEntries and endpoints of
// ServiceEntries of its namespace that are of its service account.
func workloads(snapshot func() *mirror.Snapshot) func(identity string) map[netip.Addr]struct{} {
	return func(identity string) map[netip.Addr]struct{} {
		id, err := spiffeid.FromString(identity)
		if err != nil {
			return nil
		}
		namespace, account, err := attest.ParsePath(id)
		s := snapshot()
		if err != nil || s == nil {
			return nil
		}
		found := map[netip.Addr]struct{}{}
		add := func(e *model.Endpoint) {
			if at, err := netip.ParseAddr(e.GetAddress()); err == nil && e.GetServiceAccount() == account {
				found[at.Unmap()] = struct{}{}
			}
		}
		for r := range s.In(model.KindEndpoints, namespace) {
			for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
				add(e)
			}
		}
		for r := range s.In(model.KindWorkload, namespace) {
			add(r.(*model.Workload).Spec.GetEndpoint())
		}
		return found
	}
}
