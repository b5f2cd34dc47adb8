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

// networksFor is the time for which Scopes uses the networks and clusters of one snapshot.
const networksFor = 10 * time.Second

// Scopes checks the cluster, DNS domain and network in a proxy's node. Proxies with different clusters, domains or
// networks are planned separately, so a value that a proxy invents must have no effect. The exported fields must be
// set. It is safe for concurrent use.
type Scopes struct {
	Cluster  string                  // name of the config cluster (--cluster-id)
	Domain   string                  // DNS suffix of services
	Snapshot func() *mirror.Snapshot // returns the newest snapshot
	Now      func() time.Time        // returns the present time
	Clients  *obs.Sampled            // receives log lines that clients can cause

	mu       sync.Mutex // guards the fields below; no other lock is acquired while it is held
	networks map[string]bool
	clusters map[string]bool // by cluster of a record's origin; empty: the config cluster
	at       time.Time       // time at which the names were found
}

// accept checks the cluster, DNS domain and network in a node. It clears a network that the configuration does not
// have. It replaces a DNS domain that is not s.Domain. For an unknown cluster it fails with the gRPC status
// Unavailable, and the client tries again. A cluster is known if it is the config cluster, if the configuration has a
// service, endpoint or workload of it, or if the keys of the cluster verified the proxy's token.
//
// The node's cluster must be that of the proxy's token, or of the token for which the proxy's certificate was issued.
// If the clusters differ, accept fails with PermissionDenied. Certificates from an older version of Navarch, or from
// another CA, state no cluster. As in Istio, the clusters of one mesh trust each other's identities. But Secrets belong
// to one cluster. So if there are several clusters, accept sets ClusterUnproved for an authenticated proxy whose
// credential does not prove its cluster.
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

// unknown logs and counts a name in a node that the configuration does not have. The argument what is "network" or
// "domain".
func (s *Scopes) unknown(what, name string, c serve.Client) {
	obs.UnknownScopes.WithLabelValues(what).Inc()
	s.Clients.Warn("a proxy's node names a network or DNS domain that the configuration does not have; it is served as if it had named none",
		what, obs.KeyNode, c.ID, obs.KeyPeer, c.Addr,
		obs.KeyIdentity, c.Identity, obs.KeyName, name)
}

// several reports whether the configuration has clusters besides the config cluster.
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

// knows reports whether the configuration has a network (network is true) or a cluster. It has a cluster if a Service,
// an endpoint or a Workload belongs to it. It has a network if an endpoint, a Workload or a gateway belongs to it. A
// name that was added less than networksFor ago may be missed.
func (s *Scopes) knows(name string, network bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	if network {
		return s.networks[name]
	}
	return s.clusters[name]
}

// refresh updates the networks and clusters if they are older than networksFor. The caller holds the lock.
func (s *Scopes) refresh() {
	if now := s.Now(); s.networks == nil || now.Sub(s.at) >= networksFor {
		s.networks, s.clusters = namesIn(s.Snapshot())
		s.at = now
	}
}

// namesIn returns the networks and the clusters of the objects in a snapshot.
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
