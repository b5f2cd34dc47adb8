package check

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

// controlPlane lists the control plane's Pods by revision. If Config.Revision is set, it lists the Pods of this
// revision only. Errors: there is no such Pod, or an error of the API server.
func (k *checker) controlPlane(ctx context.Context) (map[string][]corev1.Pod, error) {
	seen, of := map[string]bool{}, map[string][]corev1.Pod{}
	for _, selector := range []string{"app=istiod", "app.kubernetes.io/name=navarchd"} {
		if k.Revision != "" {
			selector += "," + label.IoIstioRev.Name + "=" + k.Revision
		}
		var all corev1.PodList
		if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(k.Namespace)+
			"/pods?labelSelector="+url.QueryEscape(selector), &all); err != nil {
			return nil, err
		}
		for _, pod := range all.Items {
			if revision := revisionOf(&pod); !seen[pod.Name] {
				seen[pod.Name] = true
				of[revision] = append(of[revision], pod)
			}
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("namespace %s has no Pod of a control plane%s (labels app=istiod, or app.kubernetes.io/name=navarchd): "+
			"--context, --istio-namespace and --revision say where it is", k.Namespace, k.inRevision())
	}
	return of, nil
}

// inRevision returns the words for the selected revision in messages; empty if all revisions are selected.
func (k *checker) inRevision() string {
	if k.Revision == "" {
		return ""
	}
	return " of revision " + k.Revision
}

// revisionOf returns the revision of a Pod. A Pod without the label has the revision "default".
func revisionOf(pod *corev1.Pod) string {
	if revision := pod.Labels[label.IoIstioRev.Name]; revision != "" {
		return revision
	}
	return "default"
}

// replicas adds the result for the number of Pods that are not ready. The other checks query only ready Pods.
func (k *checker) replicas() {
	var others []string
	for _, pod := range k.pods {
		if why := cluster.Unready(&pod); why != "" {
			others = append(others, pod.Name+" ("+why+")")
		}
	}
	ready := len(k.pods) - len(others)
	switch check := NameReplicas.of("replicas").count(len(others)); {
	case ready == 0:
		k.add(check, Failure, "none is ready: "+some(others), "see why: kubectl describe pod, kubectl logs")
	case len(others) > 0:
		k.add(check, Warning, fmt.Sprintf("%d of %d are ready; the others: %s", ready, len(k.pods), some(others)),
			"wait for them, or see why: kubectl describe pod")
	default:
		k.add(check, OK, fmt.Sprintf("%d, all ready", ready), "")
	}
}

// process is a replica with the roles and annotations of its Pod.
type process struct {
	Replica
	roles       []string
	annotations map[string]string
}

// processes returns the ready Pods that have at least one of the given roles.
func (k *checker) processes(roles ...string) (all []process) {
	for _, pod := range k.pods {
		has := rolesOf(&pod)
		if cluster.Unready(&pod) == "" && slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(has, role) }) {
			all = append(all, process{k.replica(&pod), has, pod.Annotations})
		}
	}
	return all
}

// replica returns the access to a Pod. It calls Config.Replica once for each Pod.
func (k *checker) replica(pod *corev1.Pod) Replica {
	one, made := k.made[pod.Name]
	if !made {
		one = k.Replica(pod)
		k.made[pod.Name] = one
	}
	return one
}

// rolesOf returns the roles in a Pod's argument --roles. Without this argument it returns all roles.
func rolesOf(pod *corev1.Pod) []string {
	if list := argument(pod, "--roles"); list != "" {
		return strings.Split(list, ",")
	}
	return everyRole
}

// argument returns the value of a flag among a Pod's arguments. It is empty if the flag is missing.
func argument(pod *corev1.Pod, flag string) string {
	for _, c := range pod.Spec.Containers {
		for i, arg := range c.Args {
			if value, is := strings.CutPrefix(arg, flag+"="); is {
				return value
			}
			if arg == flag && i+1 < len(c.Args) {
				return c.Args[i+1]
			}
		}
	}
	return ""
}
