package normal

import (
	"cmp"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// configuration says whether objects of a kind configure the mesh, and so come from one cluster, the config cluster
// (https://istio.io/latest/docs/ops/deployment/deployment-models/#control-plane-models). The mesh configuration's ConfigMap is one
// too; other ConfigMaps are not acted on. What describes workloads, and who may read their Secrets, comes from every cluster: of Istio's kinds
// that is WorkloadEntry (istio: pilot/pkg/serviceregistry/kube/controller/multicluster.go).
func (n *Normalizer) configuration(id object.ID) bool {
	return strings.HasSuffix(id.Group, "istio.io") && id.Kind != "WorkloadEntry" || n.named(id)
}

// named says whether an object has the name of the mesh configuration, in whatever cluster.
func (n *Normalizer) named(id object.ID) bool {
	return object.ID{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, Group: id.Group} == n.MeshID()
}

// misplaced reports configuration that is not of the config cluster: it is ignored, and nothing that was good of it stands.
func (n *Normalizer) misplaced(r *report, id object.ID) bool {
	if id.Origin.Cluster() == "" || !n.configuration(id) {
		return false
	}
	r.add(r.problem(problem.NotAllowed, problem.Error, "", "is of cluster %s and ignored: configuration comes from the config cluster "+
		"(%s) alone", id.Origin.Cluster(), n.Cluster))
	return true
}

// clusterOf is what the cluster of an object is called, in labels of its endpoints (topology.istio.io/cluster) and in meshNetworks.
func (n *Normalizer) clusterOf(id object.ID) string { return cmp.Or(id.Origin.Cluster(), n.Cluster) }
