package kube

import (
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/object"
)

// store receives the objects from the Reflector of one kind in one version.
type store struct {
	f    *follower
	kind kind
}

var _ cache.ReflectorStore = store{}

// Add implements cache.ReflectorStore. It does the same as Update.
func (st store) Add(o any) error { return st.Update(o) }

// Update implements cache.ReflectorStore. It applies the present state of an object.
func (st store) Update(o any) error {
	f, s := st.f, st.f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.current() {
		return nil
	}
	f.noteVersion(o.(metav1.Object).GetResourceVersion())
	f.put(o)
	return nil
}

// Delete implements cache.ReflectorStore. It marks an object as deleted.
func (st store) Delete(o any) error {
	f, s := st.f, st.f.source
	m, ok := o.(metav1.Object)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.current() {
		f.noteVersion(m.GetResourceVersion())
		f.remove(name{m.GetNamespace(), m.GetName()})
		f.selects(m, false)
	}
	return nil
}

// Replace implements cache.ReflectorStore. It applies a complete list. After an error nothing is applied. The error
// errStale means that the list is older than the received objects. The error errTooMuch means that more than maxLeft
// objects exceed Limits.Object.
func (st store) Replace(list []any, version string) error {
	f, s := st.f, st.f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.current() {
		return nil
	}
	why, err := f.stale(version)
	if err != nil {
		s.stale.Add(1)
		return err
	}
	if err := f.tooManyLeft(list); err != nil {
		return err
	}
	f.tooMuch, f.listing = false, amount{}
	s.lists.Add(1)
	f.whole = true
	if changed := f.replace(list, why); f.complete {
		s.repaired.Add(uint64(changed))
	}
	if f.broken { // the referenced object can be read again
		if f.broken = false; len(list) == 0 {
			s.enqueue(object.Event{Op: object.Delete, ID: f.id(name{f.kind.namespace, f.kind.name}), Location: location})
		}
	}
	f.done()
	s.synced()
	return nil
}

// errStale is the error for a list that is older than received objects. API servers behind a load balancer, and caches,
// may have different states.
var errStale = errors.New("the list is older than what was seen before")

// staleLists is the number of consecutive outdated lists that are refused. Because of pauses, this takes more than a
// minute. The next list is accepted even if it is outdated, because the cluster may have been restored from a backup.
// Objects that such a list lacks are deleted with the reason object.Rewound instead of object.Deleted.
const staleLists = 20

// noteVersion updates the largest received resource version. Resource versions of one kind are comparable as numbers
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func (f *follower) noteVersion(version string) {
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.newest = max(f.newest, n)
	}
}

// stale returns the reason with which objects that are missing in a list of this version are deleted, or errStale if
// the list must be refused. The caller has locked Source.mu.
func (f *follower) stale(version string) (object.Why, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	switch f.older++; {
	case err != nil || n >= f.newest:
		f.newest, f.older = n, 0
		return object.Deleted, nil
	case f.older > staleLists:
		f.newest, f.older = n, 0
		return object.Rewound, nil
	}
	return object.Deleted, errStale
}

// Resync implements cache.ReflectorStore; it has no effect.
func (st store) Resync() error { return nil }

// current reports whether the follower still reads the kind and version that this Reflector was created for. The caller
// has locked Source.mu.
func (st store) current() bool { return st.f.kind == st.kind }
