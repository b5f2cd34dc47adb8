package analysis

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/smallset"
)

// selector describes the workloads that a record selects.
type selector struct {
	labels    map[string]string // if empty, all workloads are selected
	field     string            // path of the labels in the object, for the warning
	namespace string            // namespace of the workloads; empty for any namespace
	analyzer  problem.Analyzer  // for the warning that the selector matches no workload
}

// selectorOf returns the selector of a record. The parameter root is the root namespace of the mesh. The result applies
// is false for a record that names its targets instead of selecting workloads. It is also false for a policy that
// refuses all requests because it is invalid or not supported.
func selectorOf(r model.Record, root string) (s selector, applies bool) {
	key := r.Meta().Key
	s = selector{namespace: key.Namespace, field: "spec.selector.matchLabels", analyzer: problem.NoMatchingWorkloadsFound}
	everywhere := key.Namespace == root
	switch t := r.(type) {
	case *model.Sidecar:
		s.labels, s.field = t.Spec.GetWorkloadSelector().GetLabels(), "spec.workloadSelector.labels"
		s.analyzer = problem.ReferencedResourceNotFound
		everywhere = false
	case *model.Telemetry:
		s.labels, s.analyzer = t.Spec.GetSelector().GetMatchLabels(), problem.ReferencedResourceNotFound
		everywhere, applies = false, len(t.Spec.GetTargetRefs()) > 0
	case *model.Gateway:
		s.labels, s.field, s.analyzer = t.Spec.GetSelector(), "spec.selector", problem.ReferencedResourceNotFound
		everywhere = true
	case *model.DestinationRule:
		s.labels, s.field = t.Spec.GetWorkloadSelector().GetMatchLabels(), "spec.workloadSelector.matchLabels"
		everywhere = false
	case *model.Service:
		s.labels, s.field = t.Spec.GetSelector(), "spec.workloadSelector.labels"
		everywhere = false
	case *model.EnvoyFilter:
		s.labels, s.field = t.Spec.GetWorkloadSelector().GetLabels(), "spec.workloadSelector.labels"
		applies = len(t.Spec.GetTargetRefs()) > 0
	case *model.ProxyConfig:
		s.labels = t.Spec.GetSelector().GetMatchLabels()
		everywhere = false
	case *model.TrafficExtension:
		s.labels = t.Spec.GetSelector().GetMatchLabels()
		applies = len(t.Spec.GetTargetRefs()) > 0
	case *model.Policy:
		s.labels = t.Spec.GetSelector()
		everywhere = everywhere && key.Kind != model.KindPeerAuthentication
		applies = t.Spec.GetClosed() || len(t.Spec.GetGateways()) > 0
	}
	if everywhere {
		s.namespace = ""
	}
	return s, !applies
}

// unselected warns of a selector that matches no workload. If no workload is known at all, there is no warning, because
// the configuration may come from files without workloads.
func unselected(x *examination) {
	s, applies := selectorOf(x.record, x.of.root)
	scoped := x.of.settings.OwnGateways && x.record.Meta().Key.Kind == model.KindGateway
	if !applies || len(s.labels) == 0 && !scoped {
		return
	}
	if scoped {
		s.namespace = x.record.Meta().Key.Namespace
	}
	if x.watch(s.namespace, s.labels).count > 0 || x.of.watches.total == 0 {
		return
	}
	of := "of namespace " + s.namespace
	if s.namespace == "" {
		of = "of any namespace"
	}
	labels, why := "has the labels "+text(s.labels), ""
	if len(s.labels) == 0 {
		labels = "exists"
	}
	if scoped {
		why = ", and a Gateway applies to no other namespace (PILOT_SCOPE_GATEWAY_TO_NAMESPACE)"
	}
	x.found(s.analyzer, problem.NoEffect, s.field, "no workload %s %s%s: nothing is selected", of, labels, why)
}

// text formats labels as a selector, sorted by key, such as "a=b,c=d".
func text(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+labels[k])
	}
	return strings.Join(parts, ",")
}

// watches contains the watched selectors, with the number of workloads that match each.
type watches struct {
	workloads map[string]map[*model.Workload]struct{} // by namespace
	total     int                                     // number of workloads
	all       map[watched]*watch
	byLabel   map[label][]*watch // watches by the field first
}

// watched identifies a watch by a namespace (empty for any namespace) and a selector as text.
type watched struct{ namespace, selector string }

// label is one label of workloads in a namespace (empty for any namespace).
type label struct{ namespace, key, value string }

// watch is one watched selector.
type watch struct {
	labels map[string]string
	key    watched
	// first is the label of the selector with the smallest key in sort order. If the selector has no labels, first has
	// only the namespace.
	first   label
	count   int                     // number of matching workloads
	readers smallset.Set[model.Key] // records that depend on the watch; without readers the watch is removed
}

// newWatches returns an empty watches, without workloads and selectors.
func newWatches() watches {
	return watches{workloads: map[string]map[*model.Workload]struct{}{}, all: map[watched]*watch{}, byLabel: map[label][]*watch{}}
}

// watch returns the watch of a selector in a namespace (empty for any namespace). It records that the examination
// depends on this watch. For Applied, the result has only the field count. The count is 1 if any workload matches, and
// 0 if no workload matches.
func (x *examination) watch(namespace string, labels map[string]string) *watch {
	if x.known != nil {
		return &watch{count: selects(x.known, namespace, labels)}
	}
	w := x.of.watches.get(namespace, labels)
	x.watched[w] = true
	return w
}

// get returns the watch of a selector. For a new selector it counts the matching workloads first.
func (s *watches) get(namespace string, labels map[string]string) *watch {
	key := watched{namespace, text(labels)}
	if w := s.all[key]; w != nil {
		return w
	}
	w := &watch{labels: labels, key: key, first: label{namespace: namespace}}
	if len(labels) > 0 {
		w.first.key = slices.Min(slices.Collect(maps.Keys(labels)))
		w.first.value = labels[w.first.key]
	}
	in := s.workloads
	if namespace != "" {
		in = map[string]map[*model.Workload]struct{}{namespace: s.workloads[namespace]}
	}
	for _, all := range in {
		for workload := range all {
			if model.Matches(labels, workload.Spec.GetEndpoint().GetLabels()) {
				w.count++
			}
		}
	}
	s.all[key] = w
	s.byLabel[w.first] = append(s.byLabel[w.first], w)
	return w
}

// drop removes a reader of a watch. It removes the watch too if no reader is left.
func (s *watches) drop(w *watch, key model.Key) {
	if !w.readers.Remove(key) {
		return
	}
	delete(s.all, w.key)
	left := slices.DeleteFunc(s.byLabel[w.first], func(other *watch) bool { return other == w })
	if s.byLabel[w.first] = left; len(left) == 0 {
		delete(s.byLabel, w.first)
	}
}

// edit applies the edit of a workload. If a watch gains its first workload or loses its last one, edit adds the readers
// of the watch to touched. If the first workload of all is added, or the last one removed, edit adds the readers of all
// watches.
func (s *watches) edit(e Edit, touched map[model.Key]bool) {
	before, counts := s.total, map[*watch]int{}
	for _, of := range []struct {
		r  model.Record
		by int
	}{{e.Old, -1}, {e.New, 1}} {
		workload, is := of.r.(*model.Workload)
		if !is {
			continue
		}
		namespace := workload.Key.Namespace
		if of.by < 0 {
			s.remove(workload)
		} else {
			if s.workloads[namespace] == nil {
				s.workloads[namespace] = map[*model.Workload]struct{}{}
			}
			s.workloads[namespace][workload] = struct{}{}
		}
		s.total += of.by
		for w := range s.matching(namespace, workload.Spec.GetEndpoint().GetLabels()) {
			counts[w] += of.by
		}
	}
	for w, by := range counts {
		was := w.count
		w.count += by
		if (was > 0) != (w.count > 0) {
			touch(w, touched)
		}
	}
	if (before > 0) != (s.total > 0) {
		for _, w := range s.all {
			touch(w, touched)
		}
	}
}

// remove removes a workload record. If the record itself is not stored, remove removes the stored record with the same
// key.
func (s *watches) remove(workload *model.Workload) {
	in := s.workloads[workload.Key.Namespace]
	if _, is := in[workload]; !is {
		for other := range in {
			if other.Key == workload.Key {
				workload = other
			}
		}
	}
	if delete(in, workload); len(in) == 0 {
		delete(s.workloads, workload.Key.Namespace)
	}
}

// touch adds the readers of a watch to touched.
func touch(w *watch, touched map[model.Key]bool) {
	for key := range w.readers.All() {
		touched[key] = true
	}
}

// matching returns the watches whose selectors match labels, among those of the namespace and those of any namespace.
func (s *watches) matching(namespace string, labels map[string]string) map[*watch]struct{} {
	out := map[*watch]struct{}{}
	look := func(at label) {
		for _, w := range s.byLabel[at] {
			if model.Matches(w.labels, labels) {
				out[w] = struct{}{}
			}
		}
	}
	for _, of := range []string{namespace, ""} {
		look(label{namespace: of})
		for k, v := range labels {
			look(label{of, k, v})
		}
	}
	return out
}
