package inject

import (
	"fmt"
	"hash/fnv"
	"strings"

	"istio.io/api/label"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// canary is a revision of the control plane that a part of the workloads of this one is given to (values: sidecarInjectorWebhook.canary): their proxies ask the canary. Templates and
// images stay those of this revision. Without it, or with a percentage of 0, nobody is; back comes who is created again.
type canary struct {
	Revision string `json:"revision"`
	Percent  int    `json:"percent"` // of the workloads, 0 to 100
}

func (c canary) check() error {
	if c.Percent < 0 || c.Percent > 100 {
		return fmt.Errorf("sidecarInjectorWebhook.canary.percent: %d; want 0 to 100", c.Percent)
	}
	if c.Percent > 0 && (c.Revision == "" || strings.Contains(c.Revision, "/")) {
		return fmt.Errorf("sidecarInjectorWebhook.canary.revision: %.100q is no revision", c.Revision)
	}
	return nil
}

// takes says whether a workload is among those: a hash decides, so all of its Pods are, and whoever is at some percentage is at a larger one. Another canary has others.
func (c canary) takes(namespace string, workload Owner) bool {
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%s/%s/%s/%s", c.Revision, namespace, workload.Kind, workload.Name)
	return int(sum.Sum32()%100) < c.Percent
}

// revisionOf is the revision whose control plane a Pod's proxy asks, and the configuration of that proxy. A Pod that names a revision itself stays, and one whose proxy
// asks something else than a Service of this control plane: nobody knows what the canary's would be.
func (s *Settings) revisionOf(pod *corev1.Pod, workload Owner, proxy *meshv1alpha1.ProxyConfig) string {
	c := s.Config.values.SidecarInjectorWebhook.Canary
	if _, named := pod.Labels[label.IoIstioRev.Name]; named || !c.takes(pod.Namespace, workload) {
		return s.Revision
	}
	port, ours := strings.CutPrefix(proxy.GetDiscoveryAddress(), NameOf(service, s.Revision)+"."+s.Namespace+".svc:")
	if !ours {
		return s.Revision
	}
	proxy.DiscoveryAddress = NameOf(service, c.Revision) + "." + s.Namespace + ".svc:" + port
	return c.Revision
}
