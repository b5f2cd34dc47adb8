package secret

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The credential of a proxy may be bound to a Pod. In this case, selectors that decide about private keys are compared
// with the labels of this Pod in the configuration. Without a bound Pod, selectors are compared with the labels of all
// workloads of the service account. A bound identity contains only the labels whose keys occur in such selectors. So
// Pods with equal values of these labels share their subscriptions.

// Bind returns the identity of a proxy whose credential is bound to a Pod. In the result, Bound is true, and Labels has
// those labels of the Pod that decide about private keys. If the Pod's name is empty, or if the snapshot has no such
// Pod of the service account (PodOf), the identity stays unchanged.
func (t *Table) Bind(s *mirror.Snapshot, who view.Identity, pod string) view.Identity {
	w := PodOf(s, who, pod)
	if w == nil {
		return who
	}
	var labels []string
	for key, value := range w.Spec.GetEndpoint().GetLabels() {
		if t.selected.has(t.in, key) {
			labels = append(labels, key+"="+value)
		}
	}
	slices.Sort(labels)
	who.Bound, who.Labels = true, podLabels.List(labels...)
	return who
}

// podLabels interns the lists of labels in identities.
var podLabels intern.Table[string]

// PodOf returns the Workload of the Pod with the given name, in the namespace and with the service account of an
// identity. A Pod of the identity's own cluster precedes a Pod of the config cluster. The result is nil if there is no
// such Pod, if the identity is zero, or if the name is empty.
func PodOf(s *mirror.Snapshot, who view.Identity, pod string) (found *model.Workload) {
	if who == (view.Identity{}) || pod == "" {
		return nil
	}
	for r := range s.Named(model.KindWorkload, who.Namespace, pod) {
		w := r.(*model.Workload)
		if knows(w, who) && w.Spec.GetEndpoint().GetServiceAccount() == who.Account && (found == nil || w.Key.Origin.Cluster() == who.Cluster) {
			found = w
		}
	}
	return found
}

// labelsOfPod returns the labels of the Pod that an identity is bound to.
func labelsOfPod(who view.Identity) map[string]string {
	labels := map[string]string{}
	for _, label := range who.Labels.All() {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}
	return labels
}

// selectorKeys caches the label keys in the selectors of all records that refer to Secrets, for one index of the input.
type selectorKeys struct {
	of   *input.Index
	keys map[string]bool
}

// has reports whether a selector names the label key.
func (s *selectorKeys) has(in *input.Input, key string) bool {
	if s.of != in.Index {
		s.of, s.keys = in.Index, map[string]bool{}
		for by := range in.Index.AllSecretUsers() {
			if r, ok := in.Get(by); ok {
				for _, selector := range access.Selectors(r) {
					for k := range maps.Keys(selector) {
						s.keys[k] = true
					}
				}
			}
		}
	}
	return s.keys[key]
}
