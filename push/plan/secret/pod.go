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

// A credential may prove which Pod a proxy is. Selectors that decide about private keys are compared with the labels that the source has
// for that Pod then, not with those of all Pods of its service account (issue 12, item 1). Of its labels only those count whose keys
// such selectors name, so Pods that they do not tell apart share their subscriptions.

// Bind is the identity of a proxy whose credential is bound to a Pod. Where it is bound to none, or the configuration knows no such Pod of
// the service account, at a snapshot, it is the identity of the service account.
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

var podLabels intern.Table[string]

// PodOf finds the Workload of a Pod of an identity: in the proxy's own cluster, else in the config cluster; nil: the configuration knows none.
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

// labelsOfPod are the labels of the Pod that an identity is bound to.
func labelsOfPod(who view.Identity) map[string]string {
	labels := map[string]string{}
	for _, label := range who.Labels.All() {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}
	return labels
}

// selectorKeys are the keys of labels by which records that refer to Secrets select, as of one index.
type selectorKeys struct {
	of   *input.Index
	keys map[string]bool
}

func (s *selectorKeys) has(in *input.Input, key string) bool {
	if s.of != in.Index {
		s.of, s.keys = in.Index, map[string]bool{}
		for by := range in.Index.AllSecretUsers() {
			if r, ok := in.Get(by); ok {
				for k := range maps.Keys(access.Selector(r)) {
					s.keys[k] = true
				}
			}
		}
	}
	return s.keys[key]
}
