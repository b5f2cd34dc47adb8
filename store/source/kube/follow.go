package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"navarch.io/navarch/store/apiserver/listwatch"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// follower lists and watches one kind, with a Reflector of client-go, and stores the objects.
type follower struct {
	source *Source
	listed chan struct{} // closed after the first complete list
	done   func()        // closes listed; the caller has locked Source.mu
	again  chan struct{} // capacity 1: list again
	stop   func()        // cancels run

	// Guarded by Source.mu:
	kind     kind
	table    *table
	complete bool            // listed is closed
	whole    bool            // the kind was listed in full at least once
	gone     bool            // the kind is no longer served
	missed   int             // number of consecutive discoveries without the kind
	wrong    string          // reason for which the kind cannot be read now; empty: it can be read
	refused  int             // number of consecutive lists of an optional kind that the API server forbade
	broken   bool            // the kind is one referenced object, for which a Broken event was emitted
	tooMuch  bool            // the last list was refused because a limit was exceeded
	listing  amount          // size of the list in progress
	left     map[name]string // objects that are left out because of a limit, with the reason
	leftMore int             // number of left-out objects beyond maxLeft
	newest   uint64          // largest resource version received
	older    int             // number of consecutive lists older than newest
	labels   labelSets
}

// newFollower returns a follower that is not running yet.
func (s *Source) newFollower(k kind) *follower {
	f := &follower{source: s, kind: k, stop: func() {}, table: newTable(), left: map[name]string{},
		listed: make(chan struct{}), again: make(chan struct{}, 1)}
	f.done = sync.OnceFunc(func() {
		f.complete = true
		close(f.listed)
	})
	return f
}

// backoff is the schedule of pauses after failed requests. Its cap is low, so that an API server is read within seconds
// after it becomes available again.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 5 * time.Second}

// run lists and watches the kind until ctx ends. It lists again every Config.Compare and on each listAgain, to find
// changes that a watch did not deliver.
func (f *follower) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // suppresses client-go's log: errors are reported by fails
	for ctx.Err() == nil {
		k, delays, pauses := f.now(), backoff, backoff
		reflector := listwatch.Reflector(k.resource, f.source.listWatch(f, k), k.expected, store{f, k}, cache.ReflectorOptions{Backoff: &delays})
		for f.now() == k && ctx.Err() == nil { // until another version of the kind is to be read
			began := time.Now()
			if !f.session(ctx, reflector) {
				continue
			}
			if time.Since(began) > 2*backoff.Cap {
				pauses = backoff
			}
			pause := pauses.Step()
			if f.waits() {
				pause = f.source.pause
			}
			_ = loop.Pause(ctx, pause)
		}
	}
}

// session runs one list and the watches after it, until the next list is due. It returns true if an error or status 410
// ended the session earlier.
func (f *follower) session(ctx context.Context, reflector *cache.Reflector) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(float64(f.source.Compare)*(0.9+0.2*rand.Float64())))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-f.again:
			cancel()
		case <-ctx.Done():
		}
	})
	if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
		f.endsBy(err)
		if f.fails(err); f.source.need(f.kind) != needed && apierrors.IsForbidden(err) {
			f.refuse()
		}
	}
	return ctx.Err() == nil
}

// refusals is the number of consecutive lists that the API server must forbid before an optional kind counts as
// forbidden. An API server that has just started may refuse requests until it has read its own role bindings.
const refusals = 3

// refuse counts a list of an optional kind that the API server forbade. After three such lists (refusals) the cluster
// counts as complete without the kind.
func (f *follower) refuse() {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.refused++; f.refused < refusals || f.complete {
		return
	}
	s.Log.Warn("a kind may not be read, and the cluster is complete without it", obs.KeyKind, f.kind.kind, obs.KeyError, f.wrong)
	f.done()
	s.synced()
}

// endsBy records whether the last list was refused because a limit was exceeded.
func (f *follower) endsBy(err error) {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.tooMuch, f.listing = isTooMuch(err), amount{}
}

// waits reports whether the next request should wait for Config.pause. A prompt retry is useless if an optional kind is
// forbidden, or if a limit is exceeded.
func (f *follower) waits() bool {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	return f.refused >= refusals || f.tooMuch
}

// now returns the kind, with the version to read.
func (f *follower) now() kind {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	return f.kind
}

// use switches the follower to another version of its kind. The caller has locked Source.mu.
func (f *follower) use(k kind) {
	k.expected = f.source.custom(k.group, k.version, k.kind, k.resource, k.namespaced).expected
	f.kind = k
	f.listAgain()
}

// listAgain ends the current session, so that the kind is listed again; it does not block.
func (f *follower) listAgain() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// fails records why the kind cannot be read now. The log has one line for the first kind that fails.
func (f *follower) fails(err error) { f.setWrong(brief(err), apierrors.IsForbidden(err)) }

// works records that the kind can be read. The log has one line when no kind fails any more.
func (f *follower) works() { f.setWrong("", false) }

// setWrong records the reason for which the kind cannot be read. If wrong is empty, the kind can be read. If forbidden
// is true, the reason is a missing right.
func (f *follower) setWrong(wrong string, forbidden bool) {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.failing()
	if !forbidden {
		f.refused = 0
	}
	f.wrong = wrong
	f.unreadable()
	switch after := s.failing(); {
	case before == 0 && after > 0:
		s.Log.Warn("Kubernetes cannot be read; the state read before stays in effect", obs.KeyKind, f.kind.kind, obs.KeyError, wrong)
	case before > 0 && after == 0:
		s.Log.Info("Kubernetes can be read again")
	}
}

// unreadable handles the failure of a kind that consists of one referenced object. If the object cannot be read,
// unreadable emits a Broken event, which retains the object's stored record. It also counts the kind as listed, so that
// a missing right for one object does not delay Synced. The caller has locked Source.mu.
func (f *follower) unreadable() {
	if f.wrong == "" || f.complete || !f.kind.referenced {
		return
	}
	f.broken = true
	f.source.enqueue(object.Event{Op: object.Broken, ID: f.id(name{f.kind.namespace, f.kind.name}), Location: location, Problem: f.wrong})
	f.done()
	f.source.synced()
}

// failing counts the kinds that cannot be read. Kinds that are no longer served, and optional kinds that the API server
// forbids, do not count. The caller has locked Source.mu.
func (s *Source) failing() (n int) {
	for _, f := range s.kinds {
		if f.wrong != "" && !f.gone && f.refused < refusals {
			n++
		}
	}
	return n
}

// put applies the present state of an object, and reports whether the object changed. The caller has locked Source.mu.
func (f *follower) put(o any) bool {
	if mesh, is := o.(*corev1.ConfigMap); is && f.kind.isMesh() {
		return f.putMesh(mesh)
	}
	l := itemOf(o)
	if why := f.exceeds(l.name, l.size); why != "" {
		f.leaveOut(l.name, why)
		return false
	}
	if namespace, is := o.(*corev1.Namespace); is {
		f.selects(namespace, true)
	}
	if f.kind.namespaced && !f.source.selection.selects(l.name.namespace) || f.source.otherRevision(f.kind, l.labels) {
		return f.remove(l.name)
	}
	if whole, is := o.(runtime.Object); is {
		l.object, l.wrong = f.kind.object(f.source.origin, whole, f.labelsOf(l.name, l.labels))
	}
	if l.wrong != nil {
		f.source.enqueue(object.Event{Op: object.Broken, ID: f.id(l.name), Location: location, Problem: brief(l.wrong)})
		return true
	}
	return f.set(l.name, l.object)
}

// labelsOf returns a shared map with equal labels, to save memory. The map belongs to the object's previous state, or
// to another object. The caller has locked Source.mu.
func (f *follower) labelsOf(n name, labels map[string]string) map[string]string {
	if before := f.table.all[n].now; before != nil && maps.Equal(before.Labels, labels) {
		return before.Labels
	}
	return f.labels.of(labels)
}

// remove marks an object as deleted, and reports whether it existed. The caller has locked Source.mu.
func (f *follower) remove(n name) bool {
	if f.kind.isMesh() {
		return f.putMesh(nil)
	}
	return f.set(n, nil)
}

// set stores the present state of an object (nil: deleted), and reports whether it changed. The caller has locked
// Source.mu.
func (f *follower) set(n name, now *object.Object) bool {
	changed := f.table.set(n, now)
	delete(f.source.lost, f.id(n))
	if f.readmit(n, !changed); changed {
		f.source.touch(f.id(n))
	}
	return changed
}

// id returns the identifier of an object of this kind.
func (f *follower) id(n name) object.ID {
	return object.ID{Origin: f.source.origin, Group: f.kind.group, Kind: f.kind.kind, Namespace: n.namespace, Name: n.name}
}

// replace applies a complete list, and returns the number of objects that changed. Objects that the list lacks are
// deleted. The parameter reason is the reason that their Delete events state. The caller has locked Source.mu.
func (f *follower) replace(list []any, reason object.Why) (changed int) {
	there := make(map[name]bool, len(list))
	for _, o := range list {
		there[itemOf(o).name] = true
	}
	f.forgetNamespaces(there)
	f.readmitAbsent(there)
	if !f.kind.isMesh() {
		for _, n := range f.table.absent(there) { // first, because deletions make room below the limits
			if f.remove(n) {
				changed++
			}
			if reason != object.Deleted {
				f.source.lost[f.id(n)] = reason
			}
		}
	} else if len(list) == 0 && f.putMesh(nil) { // the table contains only the merged ConfigMap, so absent cannot be used
		changed++
	}
	for _, o := range list {
		if f.put(o) {
			changed++
		}
	}
	return changed
}
