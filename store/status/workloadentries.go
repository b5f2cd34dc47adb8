package status

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/machines"
)

// act is the request that writes a WorkloadEntry.
type act uint8

const (
	update       act = iota // everything but the status
	create                  // with the WorkloadGroup as its owner
	updateStatus            // only the status
	remove
)

// WorkloadEntry is an existing entry, or an entry to write. An entry to write also states the kind of request that
// writes it.
type WorkloadEntry struct {
	unstructured.Unstructured
	act act
}

// registered reports whether the entry stands or stood for a machine. Such an entry has the annotation with its
// WorkloadGroup, or the annotation with the replica to which the machine's agent is connected.
func (e *WorkloadEntry) registered() bool {
	annotations := e.GetAnnotations()
	return annotations[machines.GroupAnnotation] != "" || annotations[machines.ControllerAnnotation] != ""
}

// WorkloadEntries implements API for the WorkloadEntries of a cluster, in one namespace or in all. It is safe for
// concurrent use.
type WorkloadEntries struct {
	entries, groups served

	mu      sync.Mutex // guards the fields below; no other lock is taken under it
	there   map[Key]machines.WorkloadEntry
	changed chan struct{}
}

var _ API[WorkloadEntry] = (*WorkloadEntries)(nil)

// NewWorkloadEntries returns the API for WorkloadEntries. It sends no request. An empty kubeconfig path stands for the
// service account of this process's Pod. An empty namespace stands for all namespaces. An error means that the
// kubeconfig or the service account is missing or unusable. After an error the result must not be used.
func NewWorkloadEntries(kubeconfig, namespace string) (*WorkloadEntries, error) {
	client, err := dynamicOf(kubeconfig)
	of := func(kind string) served {
		return served{kind: Kind{networking, kind}, namespace: namespace, client: client}
	}
	return &WorkloadEntries{entries: of("WorkloadEntry"), groups: of("WorkloadGroup"), there: map[Key]machines.WorkloadEntry{},
		changed: make(chan struct{})}, err
}

// There returns the registered entries in their newest known state, in no particular order. The result is nil if there
// are no such entries. An entry is registered if it has the annotation machines.GroupAnnotation or
// machines.ControllerAnnotation. The channel is closed when an entry joins or leaves the result, or when all entries
// were listed again. The caller owns the slice.
func (w *WorkloadEntries) There() (all []machines.WorkloadEntry, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.there {
		all = append(all, e)
	}
	return all, w.changed
}

// note stores the present state of one entry. For an absent entry, the last argument is nil.
func (w *WorkloadEntries) note(k Key, e *WorkloadEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, was := w.there[k]
	is := e != nil && e.registered()
	if delete(w.there, k); is {
		w.there[k] = entryOf(k, e)
	}
	if was != is {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

func (w *WorkloadEntries) noteAll(all map[Key]Found[WorkloadEntry]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.there)
	for k, f := range all {
		if f.Object.registered() {
			w.there[k] = entryOf(k, f.Object)
		}
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func entryOf(k Key, e *WorkloadEntry) machines.WorkloadEntry {
	account, _, _ := unstructured.NestedString(e.Object, "spec", "serviceAccount") // empty if the field is missing or malformed
	return machines.WorkloadEntry{Name: machines.Name(k), Account: account}
}

// Follow implements API. It lists and watches the entries until ctx ends, and returns the context's error. It updates
// the result of There.
func (w *WorkloadEntries) Follow(ctx context.Context, s Seen[WorkloadEntry], failed func(error)) error {
	return follow(ctx, &w.entries, receiver[WorkloadEntry]{seen: noted{w, s}, failed: failed,
		read: func(o any) (Key, Found[WorkloadEntry], bool) {
			u, is := o.(*unstructured.Unstructured)
			if !is {
				return Key{}, Found[WorkloadEntry]{}, false
			}
			k, f := foundEntry(u)
			return k, f, true
		}})
}

// noted passes objects to the field seen, and stores registered entries in the field entries.
type noted struct {
	entries *WorkloadEntries
	seen    Seen[WorkloadEntry]
}

// Replace implements Seen. It stores a complete list.
func (n noted) Replace(all map[Key]Found[WorkloadEntry]) {
	n.entries.noteAll(all)
	n.seen.Replace(all)
}

// Observe implements Seen. It stores the present state of one entry.
func (n noted) Observe(k Key, f Found[WorkloadEntry]) {
	n.seen.Observe(k, f)
	n.entries.note(k, f.Object)
}

// foundEntry returns the key and a Found of an entry that was read. The Found has the last writer in managedFields.
// foundEntry removes managedFields from its argument.
func foundEntry(u *unstructured.Unstructured) (Key, Found[WorkloadEntry]) {
	f := Found[WorkloadEntry]{Object: &WorkloadEntry{Unstructured: *u}, Version: versionOf(u.GetResourceVersion()),
		By: lastWriter(u.GetManagedFields(), "")}
	f.Object.SetManagedFields(nil)
	return Key{u.GetNamespace(), u.GetName()}, f
}

// Get implements API. It reads one entry, and updates the result of There. The Found of an absent entry is zero. An
// error means that the request failed, or that Follow has not found a served version of the kind.
func (w *WorkloadEntries) Get(ctx context.Context, k Key) (Found[WorkloadEntry], error) {
	resource, _, err := w.entries.objects(k.Namespace)
	if err != nil {
		return Found[WorkloadEntry]{}, err
	}
	u, err := resource.Get(ctx, k.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.note(k, nil)
		return Found[WorkloadEntry]{}, nil
	}
	if err != nil {
		return Found[WorkloadEntry]{}, err
	}
	_, f := foundEntry(u)
	w.note(k, f.Object)
	return f, nil
}

// Write implements API. It sends the kind of request that the given entry states, which may also delete the entry. The
// result of a deletion has no Object. Deleting an absent entry succeeds. A created entry gets its WorkloadGroup as
// owner. Write sets the owner in its argument too. ErrConflict means that an entry to create exists, an entry to update
// is absent, or the stored entry has another version. Any other error means that the WorkloadGroup is missing, the
// request failed, or Follow has not found a served version of the kind.
func (w *WorkloadEntries) Write(ctx context.Context, k Key, e *WorkloadEntry) (Found[WorkloadEntry], error) {
	resource, version, err := w.entries.objects(k.Namespace)
	if err != nil {
		return Found[WorkloadEntry]{}, err
	}
	var u *unstructured.Unstructured
	switch e.act {
	case create:
		if err = w.own(ctx, e); err == nil {
			e.SetAPIVersion(version)
			u, err = resource.Create(ctx, &e.Unstructured, metav1.CreateOptions{})
		}
	case updateStatus:
		u, err = resource.UpdateStatus(ctx, &e.Unstructured, metav1.UpdateOptions{})
	case remove:
		uid, version := e.GetUID(), e.GetResourceVersion()
		err = resource.Delete(ctx, k.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err == nil || apierrors.IsNotFound(err) {
			w.note(k, nil)
			return Found[WorkloadEntry]{Version: versionOf(version)}, nil
		}
	default:
		u, err = resource.Update(ctx, &e.Unstructured, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || e.act != create && apierrors.IsNotFound(err) {
		return Found[WorkloadEntry]{}, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return Found[WorkloadEntry]{}, err
	}
	_, f := foundEntry(u)
	w.note(k, f.Object)
	return f, nil
}

// errNoGroup means that an entry is not created because its WorkloadGroup is missing.
var errNoGroup = errors.New("its WorkloadGroup is not there")

// own makes the WorkloadGroup of an entry its owner, so that Kubernetes deletes the entry with the group.
func (w *WorkloadEntries) own(ctx context.Context, e *WorkloadEntry) error {
	name := e.GetAnnotations()[machines.GroupAnnotation]
	groups, _, err := w.groups.objects(e.GetNamespace())
	if errors.Is(err, errNotServed) {
		if _, err = w.groups.find(ctx); err == nil {
			groups, _, err = w.groups.objects(e.GetNamespace())
		}
	}
	if err != nil {
		return fmt.Errorf("its WorkloadGroup: %w", err)
	}
	group, err := groups.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.groups.at.Store(nil) // the group may be served in another version now
		return fmt.Errorf("%w: %s/%s", errNoGroup, e.GetNamespace(), name)
	}
	if err != nil {
		return fmt.Errorf("its WorkloadGroup: %w", err)
	}
	controls := true
	e.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: group.GetAPIVersion(), Kind: "WorkloadGroup",
		Name: name, UID: group.GetUID(), Controller: &controls}})
	return nil
}
