package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/object"
)

// listItem is one object of a list in progress, converted to the form in which it is emitted. A decoded object would
// need several times the memory.
type listItem struct {
	name   name
	size   int // in bytes; see weight
	labels map[string]string
	object *object.Object // nil: not converted yet, or wrong is set
	wrong  error          // reason for which the object cannot be converted
}

// itemOf returns the listItem of an object in a list. For a decoded object, it makes a listItem without the field
// object.
func itemOf(o any) listItem {
	if l, is := o.(*listItem); is {
		return *l
	}
	m := o.(metav1.Object)
	return listItem{name: name{m.GetNamespace(), m.GetName()}, size: weight(o.(runtime.Object)), labels: m.GetLabels()}
}

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore. The returned function converts each object of a watch's initial list
// to a *listItem as it arrives. Its error is always nil. The item of an unchanged object contains the object's previous
// state. Transformer returns nil for Namespaces and for kinds of one object, which stay decoded.
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
