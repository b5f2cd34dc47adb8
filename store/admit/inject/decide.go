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

// Decision states whether a Pod is injected, and why.
type Decision struct {
	Inject bool   // the Pod gets a proxy
	Reason string // one sentence; never empty
}

// Values of Config.Policy. The policy decides about a Pod if no label, annotation or selector does.
const (
	policyEnabled  = "enabled"
	policyDisabled = "disabled"
)

// leftOut lists the namespaces of the cluster itself, whose Pods are never injected (istio: inject.IgnoredNamespaces).
var leftOut = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, "local-path-storage"}

// Decide returns whether a Pod gets a proxy, and why. The order of precedence is Istio's: host network, namespaces of
// the cluster (such as kube-system), the Pod's label or else annotation sidecar.istio.io/inject, neverInjectSelector,
// alwaysInjectSelector, policy. Values of the label or annotation other than true and false are ignored. Decide only
// reads the Pod's labels, annotations and host network. Decide uses the namespace in its argument, and ignores the
// namespace in the Pod's metadata.
//
// One case differs from Istio. In the control plane's own namespace, neither selectors nor policy apply. Only Pods with
// sidecar.istio.io/inject: "true", such as gateways, are injected in that namespace. The reason is that the control
// plane's own Pods must start without an injector.
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
	return Decision{Inject: s.Config.Policy == policyEnabled,
		Reason: fmt.Sprintf("The Pod's labels and annotations do not decide, and the policy of %s is %s.", s.Config.Source, s.Config.Policy)}
}

// injectOf returns the value of sidecar.istio.io/inject, and whether it is a label or an annotation. The label takes
// precedence over the annotation. The value is empty if the Pod has neither.
func injectOf(pod *corev1.Pod) (kind, value string) {
	if v, there := pod.Labels[label.SidecarInject.Name]; there {
		return "label", v
	}
	return "annotation", pod.Annotations[annotation.SidecarInject.Name]
}

// saidByPod returns the decision of the Pod's own label or annotation. It returns false if the Pod has neither. Values
// other than true and false are ignored, as in Istio.
func saidByPod(pod *corev1.Pod) (Decision, bool) {
	kind, value := injectOf(pod)
	if value != "true" && value != "false" {
		return Decision{}, false
	}
	return Decision{Inject: value == "true", Reason: fmt.Sprintf("The Pod has the %s %s: %q.", kind, annotation.SidecarInject.Name, value)},
		true
}

// matching returns the index of the first selector that matches a set of labels, or -1 without a match. An empty
// selector matches nothing.
func matching(selectors []labels.Selector, set map[string]string) int {
	return slices.IndexFunc(selectors, func(s labels.Selector) bool { return !s.Empty() && s.Matches(labels.Set(set)) })
}
