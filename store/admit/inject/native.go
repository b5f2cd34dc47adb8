package inject

import "k8s.io/apimachinery/pkg/util/version"

// firstNative is the version of Kubernetes in which sidecar containers became stable (KEP 753).
var firstNative = version.MustParseGeneric("1.33.0")

// KnowsSidecars says whether the kubelets that may run a Pod know sidecar containers: that of its node, where that is known already, else those of all
// nodes. Of no nodes at all it is said that they do not. A version is a kubelet's, as "v1.33.2-gke.100".
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
