package join

import (
	"cmp"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// networksFor is the life of the networks and clusters that were found in a snapshot.
const networksFor = 10 * time.Second

// Scopes checks the names for which a proxy may be planned separately. They are the cluster and DNS domain of its node,
// and its network if a rule compares it. Views are made for these names, so names that a proxy invents must have no
// effect.
type Scopes struct {
	Cluster  string                  // of the configuration (--cluster-id)
	Domain   string                  // DNS suffix of services
	Snapshot func() *mirror.Snapshot // the newest snapshot
	Now      func() time.Time
	Clients  *obs.Sampled // log lines that clients can cause

	mu       sync.Mutex // a leaf lock: guards the fields below
	networks map[string]bool
	clusters map[string]bool // as in origins of records
	at       time.Time       // when the names were found
}

// accept checks the names of a node. A network without endpoints in the configuration, and a DNS domain that differs
// from that of the services, are removed from the node. An unknown cluster is an error: a gRPC status names it, and the
// client tries again. A cluster is known if it is the config cluster, if the configuration has a service or an endpoint
// of it, or if its keys verified the proxy's token.
//
// The node's cluster must be that of the token, or of the token from which a certificate follows. Certificates of an
// older version or of another CA state no cluster. The clusters of one mesh trust each other's identities, as in Istio,
// except for Secrets, which belong to one cluster. With several clusters a proxy's own statement does not decide whose
// Secrets it may have.
func (s *Scopes) accept(c serve.Client, node *view.Node) error {
	cluster := cmp.Or(node.Cluster, s.Cluster)
	switch {
	case c.Caller.Cluster != "" && cluster != c.Caller.Cluster:
		return status.Errorf(codes.PermissionDenied, "node.metadata.CLUSTER_ID: the proxy says that it is of cluster %q, and its credential "+
			"is of cluster %q", cluster, c.Caller.Cluster)
	case node.Cluster != "" && node.Cluster != c.Caller.Cluster && !s.knows(node.Cluster, false):
		return status.Errorf(codes.Unavailable, "node.metadata.CLUSTER_ID: cluster %q is not known here; this is the configuration of "+
			"cluster %q", node.Cluster, s.Cluster)
	}
	node.ClusterUnproved = c.Identity != "" && !c.Caller.ProvesToBeOf(cluster) && s.several()
	if node.Domain != s.Domain {
		s.unknown("domain", node.Domain, c)
		node.Domain = s.Domain
	}
	if node.Network != "" && !s.knows(node.Network, true) {
		s.unknown("network", node.Network, c)
		node.Network = ""
	}
	return nil
}

// unknown reports an unknown name of a node.
func (s *Scopes) unknown(what, name string, c serve.Client) {
	obs.UnknownScopes.WithLabelValues(what).Inc()
	s.Clients.Warn("a proxy's node names a network or DNS domain that the configuration does not have; it is served as if it had named none",
		what, obs.KeyNode, c.ID, obs.KeyPeer, c.Addr,
		obs.KeyIdentity, c.Identity, obs.KeyName, name)
}

// several reports whether the configuration has other clusters than the config cluster.
func (s *Scopes) several() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for cluster := range s.clusters {
		if cluster != "" {
			return true
		}
	}
	return false
}

// knows reports whether the configuration has a network or, with network false, a cluster. It has them if a Service, an
// endpoint or a Workload is of it, or if the network has a gateway. A name that is newer than networksFor may be
// missed.
func (s *Scopes) knows(name string, network bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	if network {
		return s.networks[name]
	}
	return s.clusters[name]
}

// refresh updates the networks and clusters if they are too old. The caller holds the lock.
func (s *Scopes) refresh() {
	if now := s.Now(); s.networks == nil || now.Sub(s.at) >= networksFor {
		s.networks, s.clusters = namesIn(s.Snapshot())
		s.at = now
	}
}

// namesIn returns the networks and the clusters of endpoints in a snapshot; services also make a cluster known.
func namesIn(snapshot *mirror.Snapshot) (networks, clusters map[string]bool) {
	networks, clusters = map[string]bool{}, map[string]bool{}
	for r := range snapshot.All(model.KindEndpoints) {
		clusters[r.Meta().Key.Origin.Cluster()] = true
		for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
			networks[e.GetNetwork()] = true
		}
	}
	for r := range snapshot.All(model.KindWorkload) {
		clusters[r.Meta().Key.Origin.Cluster()] = true
		networks[r.(*model.Workload).Spec.GetEndpoint().GetNetwork()] = true
	}
	for r := range snapshot.All(model.KindNetworkGateways) {
		for _, g := range r.(*model.NetworkGateways).Spec.GetGateways() {
			networks[g.GetNetwork()] = true
		}
	}
	for r := range snapshot.All(model.KindService) {
		clusters[r.Meta().Key.Origin.Cluster()] = true
	}
	return networks, clusters
}
