package patch

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// ClusterMatches says whether a patch of CLUSTER (one that merges, or REMOVE) is for a cluster, by the context and the name. hosts
// are the services' hosts behind an inbound cluster, whose name has none; for the others they are not looked at. A match
// with a name looks at nothing else. The static clusters have no host, port and subset: a match of one of these passes
// them over (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-ClusterMatch).
func ClusterMatches(p model.Patch, context networkingv1.EnvoyFilter_PatchContext, name string, hosts ...string) bool {
	c := p.Config()
	if c.GetApplyTo() != networkingv1.EnvoyFilter_CLUSTER || !inContext(p, context) || c.GetMatch().GetListener() != nil ||
		c.GetMatch().GetRouteConfiguration() != nil {
		return false
	}
	if !merges(p) && operation(p) != networkingv1.EnvoyFilter_Patch_REMOVE {
		return false
	}
	m := c.GetMatch().GetCluster()
	if m.GetName() != "" {
		return m.GetName() == name
	}
	direction, port, subset, host, _ := xds.ParseCluster(name)
	if direction != "inbound" {
		hosts = []string{host}
	}
	return (m.GetSubset() == "" || m.GetSubset() == subset) && (m.GetPortNumber() == 0 || m.GetPortNumber() == port) &&
		(m.GetService() == "" || slices.Contains(hosts, m.GetService()))
}

// RemovesCluster says whether a patch removes what it matches.
func RemovesCluster(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER && operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE
}

// AddsCluster says whether a patch adds a cluster to sidecars or gateways, and its name: one without a context adds to
// the outbound side, once. A patch whose value is no cluster with a name adds nothing (see Problem).
func AddsCluster(p model.Patch) (name string, ok bool) {
	if p.Config().GetApplyTo() != networkingv1.EnvoyFilter_CLUSTER || operation(p) != networkingv1.EnvoyFilter_Patch_ADD ||
		p.Config().GetMatch().GetContext() == networkingv1.EnvoyFilter_WAYPOINT {
		return "", false
	}
	c, err := whole[*clusterv3.Cluster](p)
	return c.GetName(), err == nil
}

func inContext(p model.Patch, context networkingv1.EnvoyFilter_PatchContext) bool {
	c := p.Config().GetMatch().GetContext()
	return c == networkingv1.EnvoyFilter_ANY || c == context
}

// Cluster merges patches into a cluster, in order; the cluster it was given is not changed. What does not apply, or
// makes
// a cluster that violates Envoy's API, is skipped and reported (Left). The name stands: a resource is known by it. The
// settings of EDS go where a patch changes the type.
func Cluster(c *clusterv3.Cluster, patches []model.Patch) (*clusterv3.Cluster, []error) {
	if !slices.ContainsFunc(patches, merges) {
		return c, nil
	}
	l := leaving{resource: "cluster " + c.Name}
	merged := keep(&l, patches, func(some []model.Patch) (*clusterv3.Cluster, []error) {
		drawn, next := leaving{resource: l.resource}, proto.CloneOf(c)
		for _, p := range some {
			if !merges(p) {
				continue
			}
			next = mergedInto(&drawn, p, next)
			drawn.faults = append(drawn.faults, keepName(p, "cluster", &next.Name, c.Name)...)
			if next.GetType() != clusterv3.Cluster_EDS && next.GetClusterType() == nil {
				next.EdsClusterConfig = nil
			}
		}
		return next, drawn.faults
	})
	return merged, l.faults
}
