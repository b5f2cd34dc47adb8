package inject

import "k8s.io/apimachinery/pkg/util/version"

// firstNative is the version of Kubernetes in which sidecar containers became stable (KEP 753).
var firstNative = version.MustParseGeneric("1.33.0")

// KnowsSidecars reports whether all kubelets that may run a Pod support sidecar containers (Kubernetes 1.33 or later).
// The map kubelets has a version for each name of a node, such as "v1.33.2-gke.100". If the given node is in the map,
// only its version counts. If it is not, the versions of all nodes count. The result is false for an empty map, and if
// a version that counts cannot be parsed.
func KnowsSidecars(kubelets map[string]string, node string) bool {
	if v, there := kubelets[node]; there {
		return knows(v)
	}
	for _, v := range kubelets {
		if !knows(v) {
			return false
		}
	}
	return len(kubelets) > 0
}

func knows(kubelet string) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.AtLeast(firstNative)
}
