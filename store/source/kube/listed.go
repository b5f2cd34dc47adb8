package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/object"
)

// listed is an object of a list, as it is emitted. A list is taken once it is complete, and decoded objects take several times as much until then: while many
// clusters are listed at once that would be most of what a leader has.
type listed struct {
	name   name
	size   int // see weight
	labels map[string]string
	object *object.Object // nil: not made yet, or wrong
	wrong  error
}

// listedOf is an object of a list that is listed already, or is whole: then without what is emitted of it.
func listedOf(o any) listed {
	if l, is := o.(*listed); is {
		return *l
	}
	m := o.(metav1.Object)
	return listed{name: name{m.GetNamespace(), m.GetName()}, size: weight(o.(runtime.Object)), labels: m.GetLabels()}
}

var _ cache.TransformingStore = store{}

// Transformer implements cache.TransformingStore: the objects of a list that comes one by one are made listed as they come; those that are as they were before
// are these. Namespaces, and single objects, are looked at as a whole.
func (st store) Transformer() cache.TransformFunc {
	if st.kind.kind == namespaces.kind || st.kind.name != "" {
		return nil
	}
	return func(o any) (any, error) {
		f, s := st.f, st.f.source
		l := listedOf(o)
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
