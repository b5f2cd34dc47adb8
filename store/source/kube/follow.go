package kube

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"navarch.io/navarch/store/apiserver/listwatch"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// follower reads one kind: it is the store of client-go's Reflector, which lists and watches.
type follower struct {
	source *Source
	listed chan struct{} // closed after the first complete list
	done   func()        // closes it; with the lock
	again  chan struct{} // one place: list again
	stop   func()        // ends run

	// With the source's lock:
	kind     kind
	table    *table
	complete bool            // listed is closed
	whole    bool            // it was listed in full
	gone     bool            // the kind is not served any more
	missed   int             // how many times in a row it was not
	wrong    string          // why it cannot be read now
	refused  int             // how many times in a row it was answered that it may not be, and it is optional
	broken   bool            // it is a Secret that was reported as unreadable
	tooMuch  bool            // the last list was not taken because there is too much
	listing  amount          // of the list that is being read
	left     map[name]string // objects that are left out, and why
	leftMore int             // how many more there are
	newest   uint64          // resource version that was seen
	older    int             // lists in a row that were older than that
	labels   labelSets
}

func (s *Source) newFollower(k kind) *follower {
	f := &follower{source: s, kind: k, stop: func() {}, table: newTable(), left: map[name]string{}, listed: make(chan struct{}), again: make(chan struct{}, 1)}
	f.done = sync.OnceFunc(func() {
		f.complete = true
		close(f.listed)
	})
	return f
}

// backoff is how requests that fail are repeated: an API server that comes back is asked within a few seconds.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 5 * time.Second}

// run lists and watches until ctx ends, and lists again every Compare, and when it is asked to: what a watch did not say is found then.
func (f *follower) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // what goes wrong is reported here
	for ctx.Err() == nil {
		k, delays, pauses := f.now(), backoff, backoff
		reflector := listwatch.Reflector(k.resource, f.source.listWatch(f, k), k.expected, store{f, k}, cache.ReflectorOptions{Backoff: &delays})
		for f.now() == k && ctx.Err() == nil { // until another version of the kind is read
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

// session is one list and the watches after it, until they are to be listed again; true: it ended by itself, by an error or by 410.
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

// refusals is how many lists in a row have to be refused for want of a right: an API server that has just started may refuse what it will allow,
// as long as it has not read its own bindings.
const refusals = 3

// refuse takes down that an optional kind may not be read. The cluster is read whole without it.
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

// endsBy notes whether a list was not taken because there is too much.
func (f *follower) endsBy(err error) {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.tooMuch, f.listing = isTooMuch(err), amount{}
}

// waits says whether asking again soon is of no use: an optional kind is known not to be allowed, or there is too much to read. A right that is given
// later, and room, are found after Config.pause.
func (f *follower) waits() bool {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	return f.refused >= refusals || f.tooMuch
}

// now is the kind with the version that is to be read.
func (f *follower) now() kind {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	return f.kind
}

// use reads the kind in another version. With the lock.
func (f *follower) use(k kind) {
	k.expected = f.source.custom(k.group, k.version, k.kind, k.resource, k.namespaced).expected
	f.kind = k
	f.listAgain()
}

func (f *follower) listAgain() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// fails notes why the kind cannot be read now; works, that it can. The log has one line for the first kind, and one when all work again.
func (f *follower) fails(err error) { f.says(brief(err), apierrors.IsForbidden(err)) }

func (f *follower) works() { f.says("", false) }

func (f *follower) says(wrong string, forbidden bool) {
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
		s.Log.Warn("Kubernetes cannot be read; what was read before stands", obs.KeyKind, f.kind.kind, obs.KeyError, wrong)
	case before > 0 && after == 0:
		s.Log.Info("Kubernetes can be read again")
	}
}

// unreadable reports a Secret that cannot be read, and waits for it no longer: what was stored of it stands, and nothing else is held up by a
// right that is missing for one. With the lock.
func (f *follower) unreadable() {
	if f.wrong == "" || f.complete || f.kind.kind != "Secret" {
		return
	}
	f.broken = true
	f.source.decide(object.Event{Op: object.Broken, ID: f.id(name{f.kind.namespace, f.kind.name}), Location: location, Problem: f.wrong})
	f.done()
	f.source.synced()
}

// failing is how many kinds cannot be read. With the lock.
func (s *Source) failing() (n int) {
	for _, f := range s.kinds {
		if f.wrong != "" && !f.gone && f.refused < refusals {
			n++
		}
	}
	return n
}

// store is what the Reflector puts objects into.
type store struct {
	f    *follower
	kind kind
}

var _ cache.ReflectorStore = store{}

func (st store) Add(o any) error { return st.Update(o) }

func (st store) Update(o any) error {
	f, s := st.f, st.f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.current() {
		return nil
	}
	f.saw(o.(metav1.Object).GetResourceVersion())
	f.put(o)
	return nil
}

func (st store) Delete(o any) error {
	f, s := st.f, st.f.source
	m, ok := o.(metav1.Object)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.current() {
		f.saw(m.GetResourceVersion())
		f.remove(name{m.GetNamespace(), m.GetName()})
		f.selects(m, false)
	}
	return nil
}

// Replace takes a complete list: the Reflector calls it with no other. One that is older than what was seen is refused.
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
	if f.broken { // it can be read
		if f.broken = false; len(list) == 0 {
			s.decide(object.Event{Op: object.Delete, ID: f.id(name{f.kind.namespace, f.kind.name}), Location: location})
		}
	}
	f.done()
	s.synced()
	return nil
}

// errStale is why a list is refused: an API server behind a load balancer, or a cache between, may be behind another one.
var errStale = errors.New("the list is older than what was seen before")

// staleLists is how many lists in a row are refused, for which it takes more than a minute: a cluster that was restored from a backup is behind
// what was seen for good. What such a list lacks was deleted by nobody.
const staleLists = 20

// saw notes a resource version. Those of one kind can be compared as numbers (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func (f *follower) saw(version string) {
	if n, err := strconv.ParseUint(version, 10, 64); err == nil {
		f.newest = max(f.newest, n)
	}
}

// stale returns why what a list lacks is gone, or errStale: the list is to be refused. With the lock.
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

func (st store) Resync() error { return nil }

// current says whether the kind is still read as it was when this Reflector began. With the lock.
func (st store) current() bool { return st.f.kind == st.kind }

// put takes an object as it is now; false: that is how it was. With the lock.
func (f *follower) put(o any) bool {
	if mesh, is := o.(*corev1.ConfigMap); is {
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
		f.source.decide(object.Event{Op: object.Broken, ID: f.id(l.name), Location: location, Problem: brief(l.wrong)})
		return true
	}
	return f.set(l.name, l.object)
}

// labelsOf is an object's labels: in the map that it had before, or that others have, where they are equal. With the lock.
func (f *follower) labelsOf(n name, labels map[string]string) map[string]string {
	if before := f.table.all[n].now; before != nil && maps.Equal(before.Labels, labels) {
		return before.Labels
	}
	return f.labels.of(labels)
}

// remove takes an object away; false: it was not there. With the lock.
func (f *follower) remove(n name) bool {
	if f.kind.kind == "ConfigMap" {
		return f.putMesh(nil)
	}
	return f.set(n, nil)
}

func (f *follower) set(n name, now *object.Object) bool {
	changed := f.table.set(n, now)
	delete(f.source.lost, f.id(n))
	if f.takeBack(n, !changed); changed {
		f.source.touch(f.id(n))
	}
	return changed
}

func (f *follower) id(n name) object.ID {
	return object.ID{Origin: f.source.origin, Group: f.kind.group, Kind: f.kind.kind, Namespace: n.namespace, Name: n.name}
}

// replace takes a complete list, and says how many objects differ from what is known; why is the reason for which what it lacks is gone. With the lock.
func (f *follower) replace(list []any, why object.Why) (changed int) {
	there := make(map[name]bool, len(list))
	for _, o := range list {
		there[itemOf(o).name] = true
	}
	f.forgetNamespaces(there)
	f.takeBackAbsent(there)
	if f.kind.kind != "ConfigMap" {
		for _, n := range f.table.absent(there) { // first: what goes leaves room
			if f.remove(n) {
				changed++
			}
			if why != object.Deleted {
				f.source.lost[f.id(n)] = why
			}
		}
	} else if len(list) == 0 && f.putMesh(nil) { // its table has what both come to
		changed++
	}
	for _, o := range list {
		if f.put(o) {
			changed++
		}
	}
	return changed
}
