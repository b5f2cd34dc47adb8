package meaning

import (
	"cmp"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"navarch.io/navarch/push/xds"
)

// A loss of more than someFall percent of a cluster's usable endpoints is a medium risk. A loss of more than deepFall
// percent is a high risk.
const (
	someFall = 10
	deepFall = 50
)

// assessCluster adds the risks of a modified or removed cluster. For a new cluster it adds no risks.
func (a *assessment) assessCluster(p Pair) {
	name := p.Name
	switch {
	case p.New == nil:
		for _, u := range a.usesAfter()[name] {
			a.add(ClusterGone, High, xds.Cluster, name, u.subject, u.objects, "%s leads to cluster %s, which disappears: 503 (NC)",
				u.label, shortCluster(name))
		}
		return
	case p.Old == nil:
		return
	}
	of := a.cluster(p)
	b, c := of.old, of.new
	rule := object("DestinationRule", cmp.Or(c.rule, b.rule)) // prefers the rule of the new cluster
	clear := "requests are sent in the clear"
	if peers := a.editedPeers(name); b.tls.mode != c.tls.mode && len(peers) > 0 && (len(rule) == 0 || !slices.Contains(a.Edited, rule[0])) {
		rule = peers
	} else if len(rule) > 0 { // a DestinationRule does not change the servers' mTLS modes
		clear += ", and servers that require mTLS refuse them: 503 (UF or UC)"
	}
	risk := func(code Code, level Level, format string, args ...any) {
		a.add(code, level, xds.Cluster, name, "cluster "+shortCluster(name), rule, format, args...)
	}
	switch {
	case b.tls.mode != c.tls.mode && b.tls.mode != plainText && strings.TrimPrefix(c.tls.mode, proxyPrefix) == plainText:
		risk(TLSMode, High, "TLS %s -> %s: %s", b.tls.mode, c.tls.mode, clear)
	case b.tls.mode != c.tls.mode:
		risk(TLSMode, Medium, "TLS %s -> %s", b.tls.mode, c.tls.mode)
	case b.tls.names != c.tls.names:
		risk(PeerNames, Medium, "the accepted names of the server's certificate change: %s -> %s", orNone(b.tls.names), orNone(c.tls.names))
	case b.tls.sni != c.tls.sni:
		risk(PeerNames, Medium, "SNI %s -> %s", orNone(b.tls.sni), orNone(c.tls.sni))
	}
	if b.ejection != nil && c.ejection == nil {
		risk(ProtectionGone, Medium, "failing endpoints are no longer ejected")
	}
	for i, name := range limitNames {
		if b.limits[i] != unlimited && c.limits[i] == unlimited {
			risk(ProtectionGone, Medium, "%s: %s -> unlimited", name, orDefault(b.limits[i]))
		}
	}
	if b.hashes && b.balancing != c.balancing {
		risk(SessionsMove, Medium, "balancing %s -> %s: sessions move to other endpoints", b.balancing, c.balancing)
	}
	if b.rule != "" && c.rule != "" && b.rule != c.rule && a.exists("DestinationRule "+b.rule) {
		risk(OtherObjectWins, Medium, "DestinationRule %s applies now, and no longer %s", c.rule, b.rule)
	}
	if closedCluster(c) && !closedCluster(b) && !special(name) {
		risk(Unenforceable, High, "the cluster has no endpoints any more, because its settings cannot be enforced: 503 (UH)")
	}
	a.fall("cluster "+shortCluster(name), xds.Cluster, name, usableIn(b.endpoints), usableIn(c.endpoints))
	a.refusedSecrets("cluster "+shortCluster(name), xds.Cluster, name, b.tls.secrets, c.tls.secrets)
}

// editedPeers returns the PeerAuthentications of the change that may affect whether the endpoints of a cluster accept
// mTLS. It returns those in the namespace of the cluster's host. If the change has no PeerAuthentication there, it
// returns all PeerAuthentications of the change.
func (a *assessment) editedPeers(cluster string) []string {
	var all, own []string
	_, _, _, host, _ := xds.ParseCluster(cluster)
	for _, object := range a.Edited {
		name, is := strings.CutPrefix(object, peerAuthentication)
		if !is {
			continue
		}
		all = append(all, object)
		if namespace, _, _ := strings.Cut(name, "/"); strings.HasPrefix(host[strings.IndexByte(host, '.')+1:]+".", namespace+".") {
			own = append(own, object)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}

// closedCluster reports whether a cluster is static and has no usable endpoints. Navarch makes such a cluster if
// settings cannot be enforced, so that requests fail.
func closedCluster(c cluster) bool {
	return c.rest.GetType() == clusterv3.Cluster_STATIC && c.rest.GetClusterType() == nil && usableIn(c.endpoints) == 0
}

// assessAssignment adds the risks of a modified assignment (ClusterLoadAssignment). For an assignment that is new or
// gone it adds no risks.
func (a *assessment) assessAssignment(old, new *endpointv3.ClusterLoadAssignment) {
	if old == nil || new == nil {
		return
	}
	name := new.GetClusterName()
	a.fall("cluster "+shortCluster(name), xds.Endpoint, name, usableIn(old), usableIn(new))
}

// fall adds a risk if a cluster loses many usable endpoints. The parameters before and after are the numbers of these
// endpoints.
func (a *assessment) fall(subject string, t xds.Type, resource string, before, after int) {
	lost := before - after
	switch {
	case lost*100 > before*deepFall:
		a.add(EndpointsFall, High, t, resource, subject, nil, "endpoints %d -> %d", before, after)
	case lost*100 > before*someFall:
		a.add(EndpointsFall, Medium, t, resource, subject, nil, "endpoints %d -> %d", before, after)
	}
}

// assessSubsets adds the risks of subsets without usable endpoints. It checks three kinds of subsets: subsets whose
// cluster is new or modified, subsets whose assignment is new or modified, and destinations of changed virtual hosts.
func (a *assessment) assessSubsets() {
	candidates := map[string]bool{}
	for _, p := range a.Pairs {
		switch p.Type {
		case xds.Cluster, xds.Endpoint:
			candidates[p.Name] = candidates[p.Name] || p.New != nil
		case xds.Route:
			of := uses{}
			for _, h := range a.routes(p).changed {
				of.addHost(h.new, h.subject)
			}
			for name := range of {
				candidates[name] = true
			}
		default:
		}
	}
	for _, name := range bothKeys(candidates, nil) {
		if _, _, subset, ok := hostPort(name); !ok || subset == "" || !candidates[name] {
			continue
		}
		now := as[*clusterv3.Cluster](a.After.Message(xds.Cluster, name))
		if now == nil || !balanced(now) || usable(a.After, now) > 0 {
			continue
		}
		level, u := a.emptiness(a.After, a.usesAfter(), name)
		was := Level(0)
		if old := as[*clusterv3.Cluster](a.Before.Message(xds.Cluster, name)); old != nil && usable(a.Before, old) == 0 {
			was, _ = a.emptiness(a.Before, a.usesBefore(), name)
		}
		if level <= was {
			continue
		}
		text := "the subset selects no endpoint"
		if level == High {
			text += ", and " + u.label + " of " + u.subject + " leads nowhere else: 503 (UH)"
		}
		a.add(SubsetEmpty, level, xds.Cluster, name, "cluster "+shortCluster(name),
			object("DestinationRule", configIn(now.GetMetadata())), "%s", text)
	}
}

// balanced reports whether Envoy selects among known endpoints of a cluster. It returns false for a cluster of original
// destinations and for a cluster of an extension type.
func balanced(c *clusterv3.Cluster) bool {
	return c.GetClusterType() == nil && c.GetType() != clusterv3.Cluster_ORIGINAL_DST
}

// emptiness returns the level of the risk that a subset has no endpoints. The level is High if a use (a route or a TCP
// chain) leads to the subset, but to no cluster with endpoints. In this case, emptiness also returns this use. In all
// other cases, the level is Medium.
func (a *assessment) emptiness(s Set, of uses, name string) (Level, use) {
	for _, u := range of[name] {
		others := slices.ContainsFunc(u.shares, func(o share) bool {
			c := as[*clusterv3.Cluster](s.Message(xds.Cluster, o.cluster))
			return o.weight > 0 && c != nil && (!balanced(c) || usable(s, c) > 0)
		})
		if !others {
			return High, u
		}
	}
	return Medium, use{}
}
