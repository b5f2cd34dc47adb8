package kube

import (
	"encoding/json"
	"fmt"
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
	selectors []labels.Selector            // one of them has to match; none: everything is selected
	wrong     string                       // why the newest selectors are not used; those before stand
	ready     bool                         // labels and selectors are known; until then nothing is told, and everything is read
}

func newSelection(only string) selection {
	return selection{only: only, labels: map[string]map[string]string{}}
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
		return
	}
	was := s.selection.selects(n.Name)
	s.selection.labels[n.Name] = n.Labels
	if is := s.selection.selects(n.Name); is != was {
		s.reselected(map[string]bool{n.Name: is}, is)
	}
}

// selectReady has selectors count, once all namespaces and the mesh configuration were listed: what was read meanwhile and is not selected goes
// before anybody was told of it. With the lock.
func (s *Source) selectReady() {
	if s.selection.ready {
		return
	}
	s.selection.ready = true
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
		}
	}
}
