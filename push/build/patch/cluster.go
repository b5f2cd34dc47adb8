package patch

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// ClusterMatches reports whether a patch of CLUSTER (MERGE, MERGE_AND_REPLACE_LIST or REMOVE) matches the cluster
// with a context and a name. A patch whose match is about listeners or routes does not match. If the match states a
// name, its other fields are ignored
// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/#EnvoyFilter-ClusterMatch).
//
// The port, subset and host of a cluster are parts of its name, direction|port|subset|host. A match on one of these
// parts does not match a name without parts, such as BlackHoleCluster. The name of an inbound cluster has no host, so
// hosts are the hosts of the services behind the cluster. For other clusters, hosts are ignored.
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

// RemovesCluster reports whether a patch removes the clusters that it matches.
func RemovesCluster(p model.Patch) bool {
	return p.Config().GetApplyTo() == networkingv1.EnvoyFilter_CLUSTER &&
		operation(p) == networkingv1.EnvoyFilter_Patch_REMOVE
}

// AddsCluster returns the name of the cluster that a patch adds to sidecars or gateways (CLUSTER ADD). The result ok is
// false if the patch adds no cluster, or if its value is not a valid cluster. For an invalid value, Problem returns the
// reason. If ok is false, the result name has no meaning. The caller must compare the context of the patch with the
// kind of proxy.
func AddsCluster(p model.Patch) (name string, ok bool) {
	if p.Config().GetApplyTo() != networkingv1.EnvoyFilter_CLUSTER || operation(p) != networkingv1.EnvoyFilter_Patch_ADD ||
		p.Config().GetMatch().GetContext() == networkingv1.EnvoyFilter_WAYPOINT {
		return "", false
	}
	c, err := wholeValue[*clusterv3.Cluster](p)
	return c.GetName(), err == nil
}

// inContext reports whether a patch is for a context or for all contexts.
func inContext(p model.Patch, context networkingv1.EnvoyFilter_PatchContext) bool {
	c := p.Config().GetMatch().GetContext()
	return c == networkingv1.EnvoyFilter_ANY || c == context
}

// Cluster returns a copy of a cluster into which patches are merged, in order. All patches must match the cluster
// (ClusterMatches), because Cluster does not examine applyTo, context and match. It skips patches with an operation
// other than MERGE and MERGE_AND_REPLACE_LIST. If all patches are skipped, it returns c itself.
//
// A patch that does not decode, or whose result violates a constraint of Envoy's API, is left out. The cluster keeps
// its name, because the name identifies the resource. If the patched cluster neither has the type EDS nor states a
// cluster_type, its EDS settings are removed. The result has an error for each patch that is left out (Left), and for
// each applied patch that states a different name (a model.Problem).
func Cluster(c *clusterv3.Cluster, patches []model.Patch) (*clusterv3.Cluster, []error) {
	return (*Trace)(nil).Cluster(c, patches)
}

// Cluster returns the results of the function Cluster, and records the patches that change the cluster in t.
func (t *Trace) Cluster(c *clusterv3.Cluster, patches []model.Patch) (*clusterv3.Cluster, []error) {
	if !slices.ContainsFunc(patches, merges) {
		return c, nil
	}
	l := omissions{resource: "cluster " + c.Name, trace: t}
	merged := applyAccepted(&l, patches, func(some []model.Patch) (*clusterv3.Cluster, []error) {
		omitted, next := omissions{resource: l.resource}, proto.CloneOf(c)
		for _, p := range some {
			if !merges(p) {
				continue
			}
			next = traced(t, p, next, func(next *clusterv3.Cluster) *clusterv3.Cluster {
				next = mergedInto(&omitted, p, next)
				omitted.faults = append(omitted.faults, keepName(p, "cluster", &next.Name, c.Name)...)
				if next.GetType() != clusterv3.Cluster_EDS && next.GetClusterType() == nil {
					next.EdsClusterConfig = nil
				}
				return next
			})
		}
		return next, omitted.faults
	})
	return merged, l.faults
}
