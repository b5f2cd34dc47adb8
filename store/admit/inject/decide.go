package inject

import (
	"fmt"
	"slices"

	"istio.io/api/annotation"
	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Decision says whether a Pod that a webhook has selected is injected.
type Decision struct {
	Inject bool
	Reason string // one sentence
}

// The policies of a ConfigMap: what becomes of Pods that say nothing.
const (
	policyEnabled  = "enabled"
	policyDisabled = "disabled"
)

// leftOut are namespaces whose Pods the cluster itself needs (istio: inject.IgnoredNamespaces).
var leftOut = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, "local-path-storage"}

// Decide says whether a Pod that is created in a namespace gets a proxy, in Istio's order of precedence: host network, namespaces of the
// cluster, the Pod's own label, its annotation, neverInjectSelector, alwaysInjectSelector, policy.
//
// In one case it differs from Istio's: in the control plane's own namespace neither selectors nor policy apply. Only Pods that ask for it
// themselves, as gateways do, are injected there: the control plane must never need itself to start.
func (s *Settings) Decide(pod *corev1.Pod, namespace string) Decision {
	if pod.Spec.HostNetwork {
		return Decision{Reason: "The Pod has the network of its node (spec.hostNetwork), which redirection would change for the whole node."}
	}
	if slices.Contains(leftOut, namespace) {
		return Decision{Reason: fmt.Sprintf("Pods of namespace %s are never injected.", namespace)}
	}
	if d, said := saidByPod(pod); said {
		return d
	}
	if namespace == s.Namespace {
		return Decision{Reason: fmt.Sprintf("Namespace %s is the control plane's own: its Pods are injected only with the label %s: \"true\".",
			namespace, label.SidecarInject.Name)}
	}
	if i := matching(s.Config.never, pod.Labels); i >= 0 {
		return Decision{Reason: fmt.Sprintf("neverInjectSelector[%d] of %s matches the Pod's labels.", i, s.Config.Source)}
	}
	if i := matching(s.Config.always, pod.Labels); i >= 0 {
		return Decision{Inject: true, Reason: fmt.Sprintf("alwaysInjectSelector[%d] of %s matches the Pod's labels.", i, s.Config.Source)}
	}
	return Decision{Inject: s.Config.Policy == policyEnabled, Reason: fmt.Sprintf("The Pod says nothing, and the policy of %s is %s.",
		s.Config.Source, s.Config.Policy)}
}

// injectOf is the value of sidecar.istio.io/inject, and whether it is a label's or an annotation's: the label counts before the annotation, which is its
// older form.
func injectOf(pod *corev1.Pod) (kind, value string) {
	if v, there := pod.Labels[label.SidecarInject.Name]; there {
		return "label", v
	}
	return "annotation", pod.Annotations[annotation.SidecarInject.Name]
}

// saidByPod is what the Pod itself asks for. Other values than true and false count as if nothing were said, as in Istio.
func saidByPod(pod *corev1.Pod) (Decision, bool) {
	kind, value := injectOf(pod)
	if value != "true" && value != "false" {
		return Decision{}, false
	}
	return Decision{Inject: value == "true", Reason: fmt.Sprintf("The Pod has the %s %s: %q.", kind, annotation.SidecarInject.Name, value)},
		true
}

// matching is the index of the first selector that matches; -1: none does. An empty selector matches nothing.
func matching(selectors []labels.Selector, set map[string]string) int {
	return slices.IndexFunc(selectors, func(s labels.Selector) bool { return !s.Empty() && s.Matches(labels.Set(set)) })
}
