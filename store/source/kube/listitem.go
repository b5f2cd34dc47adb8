package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/object"
)

// listItem is one object of a list, in the form in which it is emitted. A list is emitted once it is complete. Until
// then decoded objects would take several times as much memory: while many clusters are listed at once that would be
// most of a leader's memory.
type listItem struct {
	name   name
	size   int // see weight
	labels map[string]string
	object *object.Object // nil: not made yet, or wrong
	wrong  error
}

// itemOf returns the item of an object of a list: the one that Transformer made, or a new one, which has no object yet.
func itemOf(o any) listItem {
	if l, is := o.(*listItem); is {
		return *l
	}
	m := o.(metav1.Object)
	return listItem{name: name{m.GetNamespace(), m.GetName()}, size: weight(o.(runtime.Object)), labels: m.GetLabels()}
}

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore: it makes the items of a list as its objects come one by one. An
// object that has not changed keeps the one that was emitted before. Namespaces and single objects are not transformed.
func (st store) Transformer() cache.TransformFunc {
	if st.kind.kind == namespaces.kind || st.kind.name != "" {
		return nil
	}
	return func(o any) (any, error) {
		f, s := st.f, st.f.source
		l := itemOf(o)
		s.mu.Lock()
		before := f.table.all[l.name].now
		l.labels = f.labelsOf(l.name, l.labels)
		s.mu.Unlock()
		if l.object, l.wrong = st.kind.object(s.origin, o.(runtime.Object), l.labels); l.wrong == nil && same(before, l.object) {
			l.object = before
		}
		return &l, nil
	}
}
