package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// selection determines the namespaces whose objects are read. These are one namespace (ISTIO_WATCH_NAMESPACE), the
// namespaces whose labels match discoverySelectors of the mesh configuration, or all namespaces
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig).
type selection struct {
	only      string                       // the only namespace; empty: not restricted
	labels    map[string]map[string]string // labels of each namespace
	ending    map[string]bool              // namespaces that are being deleted
	selectors []labels.Selector            // at least one has to match; empty: all namespaces are selected
	wrong     string                       // reason for which the previous selectors stay in effect; empty: the newest are used
	ready     bool                         // labels and selectors are known; until then nothing is emitted, and all namespaces are read
	changed   chan struct{}                // closed when one of the fields above changes
}

// newSelection returns a selection of one namespace. If the parameter namespace is empty, the result selects all
// namespaces.
func newSelection(namespace string) selection {
	return selection{only: namespace, labels: map[string]map[string]string{}, ending: map[string]bool{}, changed: make(chan struct{})}
}

// selects reports whether objects of a namespace are read.
func (s *selection) selects(namespace string) bool {
	if s.only != "" {
		return namespace == s.only
	}
	if len(s.selectors) == 0 || !s.ready {
		return true
	}
	own, known := s.labels[namespace]
	return known && slices.ContainsFunc(s.selectors, func(sel labels.Selector) bool { return sel.Matches(labels.Set(own)) })
}

// selected returns, for each existing namespace, whether its objects are read.
func (s *selection) selected() map[string]bool {
	all := map[string]bool{}
	for namespace := range s.labels {
		all[namespace] = s.selects(namespace)
	}
	return all
}

// notifyChanged reports a change of the namespaces or of the selection, by closing the channel. The caller has locked
// Source.mu.
func (s *selection) notifyChanged() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Namespaces returns the existing namespaces whose objects are read, sorted, except namespaces that are being deleted.
// If there are no such namespaces, the result names is nil. The slice belongs to the caller. The result known is false
// until Run has listed the namespaces and the mesh configuration, and while Run is not running. The channel is closed
// when the result may have changed. Namespaces is safe for concurrent use.
func (s *Source) Namespaces() (names []string, known bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.selection.ready {
		return nil, false, s.selection.changed
	}
	for namespace, is := range s.selection.selected() {
		if is && !s.selection.ending[namespace] {
			names = append(names, namespace)
		}
	}
	slices.Sort(names)
	return names, true, s.selection.changed
}

// use parses the discoverySelectors of a mesh configuration (YAML), and replaces the selectors. If they are invalid,
// the previous selectors remain, and the field wrong has the reason.
func (s *selection) use(mesh string) {
	var stated struct {
		DiscoverySelectors []*metav1.LabelSelector `json:"discoverySelectors"`
	}
	raw, err := yaml.YAMLToJSON([]byte(mesh))
	if err == nil {
		err = json.Unmarshal(raw, &stated)
	}
	var selectors []labels.Selector
	for i, one := range stated.DiscoverySelectors {
		selector, wrong := metav1.LabelSelectorAsSelector(one)
		if wrong != nil {
			err = fmt.Errorf("discoverySelectors[%d]: %w", i, wrong)
			break
		}
		selectors = append(selectors, selector)
	}
	if err != nil {
		s.wrong = "data.mesh: " + brief(err) + "; the previous discoverySelectors stay in effect"
		return
	}
	s.selectors, s.wrong = selectors, ""
}

// selects applies the labels of a Namespace to the selection; other objects are ignored. If exists is false, the
// Namespace was deleted. The caller has locked Source.mu.
func (f *follower) selects(o metav1.Object, exists bool) {
	s := f.source
	n, is := o.(*corev1.Namespace)
	if !is {
		return
	}
	if !exists {
		delete(s.selection.labels, n.Name) // the API server reports the deletions of its objects separately
		delete(s.selection.ending, n.Name)
		s.selection.notifyChanged()
		return
	}
	was := s.selection.selects(n.Name)
	before, known := s.selection.labels[n.Name]
	if ending := n.DeletionTimestamp != nil; !known || ending != s.selection.ending[n.Name] || !maps.Equal(before, n.Labels) {
		defer s.selection.notifyChanged()
		s.selection.ending[n.Name] = ending
	}
	s.selection.labels[n.Name] = n.Labels
	if is := s.selection.selects(n.Name); is != was {
		s.reselected(map[string]bool{n.Name: is}, is)
	}
}

// selectReady puts the selection into effect, once all namespaces and the mesh configuration were listed. Objects that
// were read but are not selected are removed, so that they are never emitted. The caller has locked Source.mu.
func (s *Source) selectReady() {
	if s.selection.ready {
		return
	}
	s.selection.ready = true
	s.selection.notifyChanged()
	for f := range s.followers() {
		if !f.kind.namespaced || f.kind.isMesh() {
			continue
		}
		for n, e := range f.table.all {
			if e.now != nil && !s.selection.selects(n.namespace) {
				f.remove(n)
			}
		}
	}
	s.wake()
}

// selectBy applies the discoverySelectors of a mesh configuration. The caller has locked Source.mu.
func (s *Source) selectBy(mesh string) {
	before, selective := s.selection.selected(), len(s.selection.selectors) > 0
	if s.selection.use(mesh); !s.selection.ready {
		return
	}
	changed, more := map[string]bool{}, selective && len(s.selection.selectors) == 0
	for namespace, is := range s.selection.selected() {
		if is != before[namespace] {
			changed[namespace] = is
			more = more || is
		}
	}
	if len(changed) > 0 || more {
		s.reselected(changed, more)
		s.selection.notifyChanged()
	}
}

// reselected removes the objects of namespaces that are no longer selected. The map changed has an entry for each
// namespace whose selection changed. Its value reports whether the namespace is selected now. If added is true,
// namespaces were added, and every namespaced kind is listed again. The caller has locked Source.mu.
func (s *Source) reselected(changed map[string]bool, added bool) {
	for _, f := range s.kinds {
		if !f.kind.namespaced || f.kind.isMesh() {
			continue
		}
		for n, e := range f.table.all {
			if is, known := changed[n.namespace]; known && !is && e.now != nil {
				f.remove(n)
			}
		}
		if added {
			f.listAgain()
		}
	}
}

// forgetNamespaces removes Namespaces that a complete list lacks from the selection. The caller has locked Source.mu.
func (f *follower) forgetNamespaces(there map[name]bool) {
	if f.kind.kind != namespaces.kind {
		return
	}
	for namespace := range f.source.selection.labels {
		if !there[name{name: namespace}] {
			delete(f.source.selection.labels, namespace)
			delete(f.source.selection.ending, namespace)
			f.source.selection.notifyChanged()
		}
	}
}
