package status

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"navarch.io/navarch/store/apiserver/listwatch"
	"navarch.io/navarch/store/loop"
)

// relist is the longest duration of a watch. Afterwards all objects are listed again.
const relist = 10 * time.Minute

// receiver implements the store of a client-go Reflector. It passes objects on to a Seen.
type receiver[O any] struct {
	name   string
	seen   Seen[O]
	failed func(error)
	read   func(o any) (Key, Found[O], bool) // may change its argument; false: the object is of another kind
}

// session lists and watches once, for relist at most. If the list or watch ends earlier, session reports its error, if
// any, and returns after a second. A watch without any messages is opened again (listwatch).
func (r receiver[O]) session(ctx context.Context, plain *cache.ListWatch, like runtime.Object) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // errors are passed to failed instead
	session, cancel := context.WithTimeout(ctx, relist)
	defer cancel()
	lw := listwatch.Bound(plain, listwatch.Options{})
	err := listwatch.Reflector(r.name, lw, like, r, cache.ReflectorOptions{}).ListAndWatchWithContext(session)
	if session.Err() != nil {
		return
	}
	if err != nil {
		r.failed(err)
	}
	_ = loop.Pause(ctx, time.Second)
}

// Add implements cache.ReflectorStore.
func (r receiver[O]) Add(o any) error { return r.Update(o) }

// Update implements cache.ReflectorStore: it reports the present state of an object.
func (r receiver[O]) Update(o any) error {
	if k, f, ok := r.read(o); ok {
		r.seen.Observe(k, f)
	}
	return nil
}

// Delete implements cache.ReflectorStore: it reports the deletion of an object.
func (r receiver[O]) Delete(o any) error {
	if k, gone, ok := r.read(o); ok { // o has the version of the deletion
		gone.Object = nil
		r.seen.Observe(k, gone)
	}
	return nil
}

// Replace implements cache.ReflectorStore: it reports a complete list.
func (r receiver[O]) Replace(list []any, _ string) error {
	all := make(map[Key]Found[O], len(list))
	for _, o := range list {
		if k, f, ok := r.read(o); ok {
			all[k] = f
		}
	}
	r.failed(nil)
	r.seen.Replace(all)
	return nil
}

// Resync implements cache.ReflectorStore; it has no effect.
func (r receiver[O]) Resync() error { return nil }

func versionOf(resourceVersion string) Version {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64) // an invalid version counts as the oldest
	return Version(n)
}

// lastWriter returns the manager in fields that wrote a subresource last, or an empty text if it is not known. If the
// subresource is empty, all writes count.
func lastWriter(fields []metav1.ManagedFieldsEntry, subresource string) (by string) {
	var last time.Time
	for _, e := range fields {
		if e.Time != nil && !e.Time.Time.Before(last) && (subresource == "" || e.Subresource == subresource) {
			by, last = e.Manager, e.Time.Time
		}
	}
	return by
}
