package normal

import (
	"cmp"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// configuration reports whether an object configures the mesh, and is therefore read from the config cluster only
// (https://istio.io/latest/docs/ops/deployment/deployment-models/#control-plane-models). The ConfigMap of the mesh
// configuration is such an object; other ConfigMaps are not. Workloads, and the permissions to read Secrets, are read
// from every cluster. Istio's kind WorkloadEntry counts as a workload (istio:
// pilot/pkg/serviceregistry/kube/controller/multicluster.go).
func (n *Normalizer) configuration(id object.ID) bool {
	_, read := kinds[kindKey{id.Group, id.Kind}]
	defined := strings.HasSuffix(id.Group, "istio.io") || read && model.Defined(id.Group) && id.Group != object.OwnGroup
	return defined && id.Kind != "WorkloadEntry" || n.named(id)
}

// named reports whether an object has the name of the ConfigMap with the mesh configuration, in any cluster.
func (n *Normalizer) named(id object.ID) bool {
	return object.ID{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, Group: id.Group} == n.MeshID()
}

// misplaced reports a configuration object that is not in the config cluster, and returns true for it. The object is
// ignored, and its previous state is removed.
func (n *Normalizer) misplaced(r *report, id object.ID) bool {
	if id.Origin.Cluster() == "" || !n.configuration(id) {
		return false
	}
	r.add(r.problem(problem.NotAllowed, problem.Error, "", "is of cluster %s and ignored: configuration comes from the config cluster "+
		"(%s) alone", id.Origin.Cluster(), n.Cluster))
	return true
}

// clusterOf returns the name of an object's cluster, as in the label topology.istio.io/cluster of endpoints and in
// meshNetworks.
func (n *Normalizer) clusterOf(id object.ID) string { return cmp.Or(id.Origin.Cluster(), n.Cluster) }
