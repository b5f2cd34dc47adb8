// Package allocate assigns automatic addresses to hosts of ServiceEntries that state no addresses. Each host gets one
// IPv4 and one IPv6 address of the configured ranges. The host keeps these addresses while it exists, unless another
// party (istiod, or another revision of the control plane) assigns addresses. If status.addresses of a ServiceEntry
// contains an address of the ranges for a host, the host gets this address. This does not apply to an address that
// another host has, or that a spec states. Assignments are stored in etcd below allocations/ before they are used, so
// they survive restarts, changes of leader and the loss of a status.
//
// Owns: allocations/ in etcd, which only the leader writes; the objects that it emits, each with the addresses of one
// ServiceEntry.
// Reads: the ServiceEntries that the sources emit; the lock of istiod's controller of automatic addresses.
// Never: assigns a new address while istiod holds, or may hold, that lock; decides which hosts need addresses
// (store/normal does); writes to Kubernetes (store/status does).
package allocate

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
)

// folder is the prefix of the stored assignments in etcd. The rest of a path is the namespace/name of the ServiceEntry.
const folder = "allocations/"

// Grace is the usual value of Config.Grace. DNS clients have dropped their cached answers after this time.
const Grace = 10 * time.Minute

// The default ranges, equal to istiod's.
const (
	IPv4Range = "240.240.0.0/16"
	IPv6Range = "2001:2::/48"
)

// maxProblems is the largest number of ServiceEntries that Problems names.
const maxProblems = 20

// Problem states why a host of a ServiceEntry has no automatic address. If Name is zero, Message counts the further
// ServiceEntries that lack addresses.
type Problem struct {
	Name
	Message string
}

// Leader assigns addresses while Run runs. Its methods are safe for concurrent use, but there must be only one Run at a
// time.
type Leader struct {
	Config
	wake chan struct{} // capacity 1; Observe sends a value

	mu       sync.Mutex                 // leaf mutex; guards the fields below
	entries  map[object.ID]ServiceEntry // ServiceEntries of all sources
	changed  map[Name]bool              // ServiceEntries that changed since the last inform
	unsynced map[origin.Origin]bool     // sources that are not synced at present

	problems atomic.Pointer[[]Problem] // nil while this process does not lead
}

// New returns a Leader that has observed no events. It sends no request.
func New(c Config) *Leader {
	l := &Leader{Config: c, wake: make(chan struct{}, 1), entries: map[object.ID]ServiceEntry{}, changed: map[Name]bool{},
		unsynced: map[origin.Origin]bool{}}
	for _, source := range c.Sources {
		l.unsynced[source] = true
	}
	return l
}

// Problems returns the problems of the present term of leadership, sorted by name. It returns the problems of at most
// 20 ServiceEntries, and one more problem with the number of the others. The result is nil if there are no problems,
// before the first assignment of the term, and while Run does not run. The caller must not change the result.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Observe records events of sources, before they are written to the store. A nil slice signals that the result of
// Config.Promoted may have changed. Observe does not block, and does not keep the slice.
func (l *Leader) Observe(events []object.Event) {
	l.mu.Lock()
	for _, e := range events {
		l.observe(e)
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// observe records one event. The caller has the lock.
func (l *Leader) observe(e object.Event) {
	switch e.Op {
	case object.Synced:
		delete(l.unsynced, e.ID.Origin)
		return
	case object.Forget:
		for id := range l.entries {
			if id.Origin == e.ID.Origin {
				l.forget(id)
			}
		}
		if slices.Contains(l.Sources, e.ID.Origin) {
			l.unsynced[e.ID.Origin] = true
		}
		return
	case object.Put, object.Delete, object.Broken:
	}
	if e.ID.Group != "networking.istio.io" || e.ID.Kind != "ServiceEntry" || e.ID.Name == "" || e.ID.Origin.Cluster() != "" {
		return
	}
	switch e.Op {
	case object.Put:
		name := Name{e.ID.Namespace, e.ID.Name}
		addresses, ok := normal.EntryAddressesOf(e.Object)
		if _, known := l.entries[e.ID]; !ok && known {
			return // the last valid state remains in effect
		}
		l.entries[e.ID] = ServiceEntry{Name: name, Created: e.Object.CreatedAt(), EntryAddresses: addresses}
		l.changed[name] = true
	case object.Delete:
		l.forget(e.ID)
	case object.Broken, object.Synced, object.Forget:
	}
}

// forget removes a ServiceEntry. The caller has the lock.
func (l *Leader) forget(id object.ID) {
	if _, known := l.entries[id]; known {
		delete(l.entries, id)
		l.changed[Name{id.Namespace, id.Name}] = true
	}
}

// entryOf returns a ServiceEntry from the source with the highest priority. It returns false if no source has the
// ServiceEntry. The caller has the lock.
func (l *Leader) entryOf(name Name) (ServiceEntry, bool) {
	for _, source := range []string{origin.Kube, origin.Files} {
		id := object.ID{Origin: origin.New("", source), Group: "networking.istio.io", Kind: "ServiceEntry",
			Namespace: name.Namespace, Name: name.Name}
		if e, known := l.entries[id]; known {
			return e, true
		}
	}
	return ServiceEntry{}, false
}

// term is the state of one term of leadership.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	book    *book
	stored  map[Name]string // value in etcd of each ServiceEntry, as JSON
	emitted map[Name]string // object last emitted for each ServiceEntry, as JSON
	pending map[Name]bool   // ServiceEntries to store and emit
	synced  bool            // Synced was emitted
}

// Run assigns addresses for one term of leadership. It blocks until ctx ends or another process leads. Errors of etcd
// are logged, and the work is retried.
func (l *Leader) Run(ctx context.Context, store *kv.Store, epoch kv.Epoch) {
	defer l.problems.Store(nil)
	t := &term{Leader: l, store: store, epoch: epoch, book: newBook(l.Grace, l.Ranges...), stored: map[Name]string{},
		emitted: map[Name]string{}, pending: map[Name]bool{}}
	if !t.load(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, err := t.step(ctx)
		switch {
		case errors.Is(err, kv.ErrDeposed):
			return
		case err != nil && ctx.Err() == nil:
			l.Log.Warn("automatic addresses cannot be stored in etcd, and changes take no effect until they are; trying again",
				obs.KeyError, err)
			wait = time.Second
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-l.Lock.Changed():
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// load repeatedly tries to read the stored assignments, until it succeeds. It returns false if ctx ends first.
func (t *term) load(ctx context.Context) bool {
	for ctx.Err() == nil {
		blobs, _, err := t.store.Blobs(ctx, folder, 0)
		if err == nil {
			for _, blob := range blobs {
				t.loadBlob(blob)
			}
			t.markAll()
			return true
		}
		t.Log.Warn("stored automatic addresses cannot be read from etcd; trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
	return false
}

// loadBlob adds one stored value to the book. An invalid value counts as missing, and is later replaced or deleted.
func (t *term) loadBlob(blob kv.Blob) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(blob.Path, folder), "/")
	of := Name{namespace, name}
	hosts := Hosts{}
	if err := json.Unmarshal(blob.Raw, &hosts); err != nil {
		t.Log.Warn("stored automatic addresses of a ServiceEntry cannot be decoded: its hosts get those of its status, or new ones",
			obs.KeyName, of.String(), obs.KeyError, err)
		hosts = nil
	}
	t.stored[of] = string(blob.Raw)
	t.book.Load(of, hosts)
}

// markAll marks all observed ServiceEntries as changed.
func (t *term) markAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.entries {
		t.changed[Name{id.Namespace, id.Name}] = true
	}
}

// inform applies the changed ServiceEntries to the book. It returns false and does nothing until all sources are
// synced.
func (t *term) inform() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unsynced) > 0 {
		return false
	}
	for name := range t.changed {
		if e, there := t.entryOf(name); there {
			t.book.Put(e)
		} else {
			t.book.Remove(name)
		}
	}
	clear(t.changed)
	return true
}

// step assigns addresses, stores the assignments in etcd, and then emits them. The caller must call step again after
// the returned time, or earlier after a change. The error is kv.ErrDeposed or an error of etcd. After an error the
// assignments stay pending, and nothing is emitted.
func (t *term) step(ctx context.Context) (time.Duration, error) {
	const longest = time.Hour
	if !t.inform() {
		return longest, nil
	}
	by := t.giver()
	altered, wait := t.book.Step(time.Now(), by)
	for _, name := range altered {
		t.pending[name] = true
	}
	if err := t.write(ctx); err != nil {
		return 0, err
	}
	t.publish()
	t.report()
	if t.Want != nil {
		t.want(by == self)
	}
	if wait <= 0 {
		wait = longest
	}
	return wait, nil
}

// giver returns the party that assigns new addresses at present.
func (t *term) giver() giver {
	switch promoted := t.Promoted == nil || t.Promoted(); {
	case !promoted || t.Lock.Others():
		return others
	case t.Lock.Held():
		return unknown
	}
	return self
}

// perChange is the largest number of values in one transaction.
const perChange = 64

// write stores the pending assignments that differ from the stored ones, in order of names. The error kv.ErrDeposed
// means that another process leads. All other errors are those of etcd.
func (t *term) write(ctx context.Context) error {
	blobs := t.store.FencedBlobs(t.epoch, perChange)
	for _, name := range slices.SortedFunc(maps.Keys(t.pending), Name.compare) {
		raw := ""
		if kept := t.book.Kept(name); len(kept) > 0 {
			text, err := json.Marshal(kept)
			if err != nil {
				return err
			}
			raw = string(text)
		}
		if raw == t.stored[name] {
			continue
		}
		err := blobs.Set(ctx, folder+name.String(), []byte(raw), func() {
			if t.stored[name] = raw; raw == "" {
				delete(t.stored, name)
			}
		})
		if err != nil {
			return err
		}
	}
	return blobs.Flush(ctx)
}

// publish emits the pending assignments, after write has stored them. The first call emits Synced at the end.
func (t *term) publish() {
	var events []object.Event
	for _, name := range slices.SortedFunc(maps.Keys(t.pending), Name.compare) {
		hosts := map[string][]string{}
		for host, all := range t.book.Addresses(name) {
			for _, a := range all {
				hosts[host] = append(hosts[host], a.String())
			}
		}
		made, err := normal.NewAutomatic(name.Namespace, name.Name, hosts) // err is nil: strings always encode
		was, emitted := t.emitted[name]
		switch {
		case err != nil || emitted && was == string(made.JSON) || !emitted && len(hosts) == 0:
		case len(hosts) == 0:
			delete(t.emitted, name)
			events = append(events, object.Event{Op: object.Delete, ID: made.ID})
		default:
			t.emitted[name] = string(made.JSON)
			events = append(events, object.Event{Op: object.Put, ID: made.ID, Object: made, Location: made.Location})
		}
	}
	clear(t.pending)
	if !t.synced {
		t.synced = true
		events = append(events, object.Event{Op: object.Synced, ID: object.ID{Origin: Origin()}})
	}
	if len(events) > 0 {
		t.Emit(events)
	}
}

// Origin returns the origin of the objects that a Leader emits.
func Origin() origin.Origin { return origin.New("", origin.Addresses) }

// report stores the problems of the book, for the method Leader.Problems.
func (t *term) report() {
	problems := t.book.Problems(maxProblems)
	t.problems.Store(&problems)
}

// want calls Config.Want with the addresses that the status of ServiceEntries in the config cluster should have.
// ServiceEntries whose hosts need no addresses are left out. If allocate is false, the map is empty.
func (t *term) want(allocate bool) {
	all := map[Name]Hosts{}
	if allocate {
		t.mu.Lock()
		for id, e := range t.entries {
			if id.Origin.Source() == origin.Kube && len(e.Hosts) > 0 {
				all[e.Name] = t.book.Addresses(e.Name)
			}
		}
		t.mu.Unlock()
	}
	t.Want(all)
}
