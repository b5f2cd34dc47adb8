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

// selection is which namespaces' objects are read: one (ISTIO_WATCH_NAMESPACE), those that discoverySelectors of the mesh configuration
// select by their labels, or all (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig).
type selection struct {
	only      string                       // empty: every one
	labels    map[string]map[string]string // of all namespaces
	ending    map[string]bool              // those among them that are being deleted
	selectors []labels.Selector            // one of them has to match; none: everything is selected
	wrong     string                       // why the newest selectors are not used; those before stand
	ready     bool                         // labels and selectors are known; until then nothing is emitted, and everything is read
	changed   chan struct{}                // closed when one of the above is another
}

func newSelection(only string) selection {
	return selection{only: only, labels: map[string]map[string]string{}, ending: map[string]bool{}, changed: make(chan struct{})}
}

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

// selected is all namespaces that are read, of those that there are.
func (s *selection) selected() map[string]bool {
	all := map[string]bool{}
	for namespace := range s.labels {
		all[namespace] = s.selects(namespace)
	}
	return all
}

// moved says that namespaces, or which of them are selected, are others. With the lock.
func (s *selection) moved() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Namespaces are those whose objects are read and that are not being deleted, sorted; false: that is not known, because not all were listed
// or nothing is read now. The channel is closed when the answer may be another one.
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

// use takes discoverySelectors from a mesh configuration (YAML).
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
		s.wrong = "data.mesh: " + brief(err) + "; the discoverySelectors of before stand"
		return
	}
	s.selectors, s.wrong = selectors, ""
}

// selects takes over the labels of a Namespace, by which discoverySelectors select. With the lock.
func (f *follower) selects(o metav1.Object, there bool) {
	s := f.source
	n, is := o.(*corev1.Namespace)
	if !is {
		return
	}
	if !there {
		delete(s.selection.labels, n.Name) // its objects go by themselves
		delete(s.selection.ending, n.Name)
		s.selection.moved()
		return
	}
	was := s.selection.selects(n.Name)
	before, known := s.selection.labels[n.Name]
	if ending := n.DeletionTimestamp != nil; !known || ending != s.selection.ending[n.Name] || !maps.Equal(before, n.Labels) {
		defer s.selection.moved()
		s.selection.ending[n.Name] = ending
	}
	s.selection.labels[n.Name] = n.Labels
	if is := s.selection.selects(n.Name); is != was {
		s.reselected(map[string]bool{n.Name: is}, is)
	}
}

// selectReady has selectors count, once all namespaces and the mesh configuration were listed: what was read meanwhile and is not selected goes
// before it was emitted. With the lock.
func (s *Source) selectReady() {
	if s.selection.ready {
		return
	}
	s.selection.ready = true
	s.selection.moved()
	for f := range s.followers() {
		if !f.kind.namespaced || f.kind.kind == "ConfigMap" {
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

// selectBy takes over the discoverySelectors of a mesh configuration. With the lock.
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
		s.selection.moved()
	}
}

// reselected lets go of the objects of namespaces that are not read any more, and lists everything again where there is more to read (more).
// With the lock.
func (s *Source) reselected(changed map[string]bool, more bool) {
	for _, f := range s.kinds {
		if !f.kind.namespaced || f.kind.kind == "ConfigMap" {
			continue
		}
		for n, e := range f.table.all {
			if is, known := changed[n.namespace]; known && !is && e.now != nil {
				f.remove(n)
			}
		}
		if more {
			f.listAgain()
		}
	}
}

// forgetNamespaces drops what is known of Namespaces that a complete list has not. With the lock.
func (f *follower) forgetNamespaces(there map[name]bool) {
	if f.kind.kind != namespaces.kind {
		return
	}
	for namespace := range f.source.selection.labels {
		if !there[name{name: namespace}] {
			delete(f.source.selection.labels, namespace)
			delete(f.source.selection.ending, namespace)
			f.source.selection.moved()
		}
	}
}
