package inject

import (
	"fmt"
	"hash/fnv"
	"strings"

	"istio.io/api/label"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// canary is a second revision of the control plane that serves a part of this revision's workloads (values:
// sidecarInjectorWebhook.canary). The proxies of these workloads connect to the canary revision. Templates and images
// are those of this revision. Without a canary, or with 0 percent, all workloads belong to this revision. A change of
// the canary only applies to Pods that are created later.
type canary struct {
	Revision string `json:"revision"`
	Percent  int    `json:"percent"` // part of the workloads, 0 to 100
}

func (c canary) check() error {
	if c.Percent < 0 || c.Percent > 100 {
		return fmt.Errorf("sidecarInjectorWebhook.canary.percent: %d; want 0 to 100", c.Percent)
	}
	if c.Percent > 0 && (c.Revision == "" || strings.Contains(c.Revision, "/")) {
		return fmt.Errorf("sidecarInjectorWebhook.canary.revision: %.100q is not the name of a revision", c.Revision)
	}
	return nil
}

// selects reports whether a workload belongs to the canary. A hash of the workload's namespace, kind and name decides,
// so the result is the same for all Pods of the workload. A larger percentage includes the workloads of a smaller
// percentage. The hash includes the canary's revision, so that each canary has a different selection.
func (c canary) selects(namespace string, workload Owner) bool {
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%s/%s/%s/%s", c.Revision, namespace, workload.Kind, workload.Name)
	return int(sum.Sum32()%100) < c.Percent
}

// revisionOf returns the revision to which a Pod's proxy connects. If the result is the canary's revision, revisionOf
// also changes the proxy's discoveryAddress. A Pod with a revision in its labels does not go to the canary. If a Pod's
// proxy connects to an address other than this revision's Service, the corresponding address of the canary is unknown.
// Such a Pod does not go to the canary either.
func (s *Settings) revisionOf(pod *corev1.Pod, workload Owner, proxy *meshv1alpha1.ProxyConfig) string {
	c := s.Config.values.SidecarInjectorWebhook.Canary
	if _, named := pod.Labels[label.IoIstioRev.Name]; named || !c.selects(pod.Namespace, workload) {
		return s.Revision
	}
	port, ours := strings.CutPrefix(proxy.GetDiscoveryAddress(), NameOf(service, s.Revision)+"."+s.Namespace+".svc:")
	if !ours {
		return s.Revision
	}
	proxy.DiscoveryAddress = NameOf(service, c.Revision) + "." + s.Namespace + ".svc:" + port
	return c.Revision
}
