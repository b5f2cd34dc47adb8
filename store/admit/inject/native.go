package inject

import "k8s.io/apimachinery/pkg/util/version"

// firstNative is the version of Kubernetes in which sidecar containers became stable (KEP 753).
var firstNative = version.MustParseGeneric("1.33.0")

// KnowsSidecars reports whether the kubelets that may run a Pod know sidecar containers. The node's version decides if
// it is known, otherwise those of all nodes. Without nodes the result is false. kubelets maps nodes to versions, as
// "v1.33.2-gke.100".
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
