package check

import (
	"context"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// controlPlane finds the control plane's Pods.
func (k *checker) controlPlane(ctx context.Context) error {
	for _, selector := range []string{"app=istiod", "app.kubernetes.io/name=navarchd"} {
		if k.Revision != "" {
			selector += ",istio.io/rev=" + k.Revision
		}
		var all corev1.PodList
		if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(k.Namespace)+"/pods?labelSelector="+url.QueryEscape(selector), &all); err != nil {
			return err
		}
		for _, pod := range all.Items {
			if !slices.ContainsFunc(k.pods, func(p corev1.Pod) bool { return p.Name == pod.Name }) {
				k.pods = append(k.pods, pod)
			}
		}
	}
	return nil
}

// process is a replica with what its Pod says that it does.
type process struct {
	Replica
	roles []string
}

// processes are those of ready Pods with one of the roles; where the Pods are not known, the replicas that serve proxies, with all roles.
func (k *checker) processes(roles ...string) (all []process) {
	if len(k.pods) == 0 {
		for _, r := range k.replicas {
			all = append(all, process{r, everyRole})
		}
		return all
	}
	for _, pod := range k.pods {
		has := rolesOf(&pod)
		if ready(&pod) && slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(has, role) }) {
			all = append(all, process{k.replica(&pod), has})
		}
	}
	return all
}

// replica is the one of a Pod, made once.
func (k *checker) replica(pod *corev1.Pod) Replica {
	one := k.Replica(pod)
	for _, r := range slices.Concat(k.replicas, k.made) {
		if r.Name == one.Name {
			return r
		}
	}
	k.made = append(k.made, one)
	return one
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
