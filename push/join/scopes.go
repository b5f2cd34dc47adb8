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

// networksFor is for how long the networks and clusters that were found in a snapshot are used before they are looked for again.
const networksFor = 10 * time.Second

// Scopes is what a proxy may name to be planned for separately: cluster and DNS domain of its node, and its network where a rule compares
// it. Views are made by these, so that names which proxies invent must make none (issue 12, item 9).
type Scopes struct {
	Cluster  string // of the configuration (--cluster-id)
	Domain   string // DNS suffix of services
	Snapshot func() *mirror.Snapshot
	Now      func() time.Time
	Clients  *obs.Sampled // log lines that clients bring about

	mu       sync.Mutex // a leaf: guards what follows
	networks map[string]bool
	clusters map[string]bool // as origins of records have them
	at       time.Time       // when they were found
}

// accept has a node name what is known. A network that the configuration has no endpoint of, and another DNS domain than that of
// the services, are as if they had not been named. A cluster that is not known waits: the error is a gRPC status that names it,
// and the client tries again. One is known if it is the config cluster, if the configuration has a service or an endpoint of it, or if
// its keys verified the proxy's token. The cluster of the token, and of that which a certificate follows from, must be the node's; a
// certificate of an older version or of another CA names none: the clusters of one mesh trust each other's identities, as in Istio, but for Secrets, which are a
// cluster's own. Where there are several clusters, whose Secrets are a proxy's is not for the proxy to say.
func (s *Scopes) accept(c serve.Client, node *view.Node) error {
	cluster := cmp.Or(node.Cluster, s.Cluster)
	switch {
	case c.Caller.Cluster != "" && cluster != c.Caller.Cluster:
		return status.Errorf(codes.PermissionDenied, "node.metadata.CLUSTER_ID: the proxy says that it is of cluster %q, and its credential is of cluster %q", cluster, c.Caller.Cluster)
	case node.Cluster != "" && node.Cluster != c.Caller.Cluster && !s.knows(node.Cluster, false):
		return status.Errorf(codes.Unavailable, "node.metadata.CLUSTER_ID: cluster %q is not known here; this is the configuration of cluster %q", node.Cluster, s.Cluster)
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

// unknown reports what a node names.
func (s *Scopes) unknown(what, name string, c serve.Client) {
	obs.UnknownScopes.WithLabelValues(what).Inc()
	s.Clients.Warn("a proxy's node names a network or DNS domain that the configuration does not have; it is served as if it had named none", what, obs.KeyNode, c.ID, obs.KeyPeer, c.Addr,
		obs.KeyIdentity, c.Identity, obs.KeyName, name)
}

// several says whether the configuration knows other clusters than the config cluster.
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

// knows says whether the configuration knows a network or, if it is none, a cluster: a Service, an endpoint or a Workload is of it, or the
// network has a gateway. One that is there for less than networksFor may be missed.
func (s *Scopes) knows(name string, network bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	if network {
		return s.networks[name]
	}
	return s.clusters[name]
}

// refresh looks for networks and clusters again where it is time. The lock is held.
func (s *Scopes) refresh() {
	if now := s.Now(); s.networks == nil || now.Sub(s.at) >= networksFor {
		s.networks, s.clusters = namesIn(s.Snapshot())
		s.at = now
	}
}

// namesIn finds the networks and the clusters that a snapshot has endpoints of; services make a cluster known, too.
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
