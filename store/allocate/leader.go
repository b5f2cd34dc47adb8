// Package allocate assigns automatic addresses to hosts of ServiceEntries that state none: each host gets one of the
// IPv4 range and one of the IPv6 range, and keeps them for as long as it exists. Addresses of the ranges in
// status.addresses of an object in Kubernetes are adopted where no host has them. Which host has which is stored in
// allocations/ before anything uses it, so restarts, other leaders and a status that is lost change nothing.
//
// Owns: allocations/ in etcd (the leader), and the objects that say which addresses a ServiceEntry has
// (normal.AutomaticID).  Reads: what sources emit of ServiceEntries; the lock of istiod's controller of the same
// purpose.  Never: gives a new address while istiod holds that lock; which hosts are to have one (store/normal);
// writes to Kubernetes (store/status).
package allocate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
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

const folder = "allocations/"

// Grace is for how long the addresses of a host that is gone are nobody else's: names that were resolved before are
// forgotten by then.
const Grace = 10 * time.Minute

// The default ranges, istiod's.
const (
	IPv4Range = "240.240.0.0/16"
	IPv6Range = "2001:2::/48"
)

// maxProblems is how many ServiceEntries are named that lack an address.
const maxProblems = 20

// Problem is why a host has no automatic address.
type Problem struct {
	Name
	Message string
}

// Config is what New needs.
type Config struct {
	Ranges  []netip.Prefix
	Grace   time.Duration
	Sources []origin.Origin // those of ServiceEntries, of the config cluster: nothing is decided before each has emitted everything
	Lock    *Lock           // istiod's; nil: there is no cluster, so nobody else gives addresses
	// Promoted says whether this revision of the control plane gives addresses; the others use those that it gives.
	// Observe(nil) where that changes. nil: it does.
	Promoted func() bool
	Emit     func([]object.Event)
	// Want is called with the addresses that the ServiceEntries of the cluster have, all of them, where new ones may
	// be given; nil: nobody is.
	Want func(map[Name]Hosts)
	Log  *slog.Logger
}

// Leader has each ServiceEntry have its addresses while this process leads. Its methods may be called from any
// goroutine.
type Leader struct {
	Config
	wake chan struct{} // one place: something was observed

	mu       sync.Mutex // a leaf: guards what follows
	entries  map[object.ID]ServiceEntry
	changed  map[Name]bool // that sources emitted since they were last looked at
	unsynced map[origin.Origin]bool

	problems atomic.Pointer[[]Problem]
}

// New makes one that has observed nothing.
func New(c Config) *Leader {
	l := &Leader{Config: c, wake: make(chan struct{}, 1), entries: map[object.ID]ServiceEntry{}, changed: map[Name]bool{},
		unsynced: map[origin.Origin]bool{}}
	for _, source := range c.Sources {
		l.unsynced[source] = true
	}
	return l
}

// Problems are those of the term that this process leads in.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Observe takes what a source emits, before the ingester does; nil: Promoted may say something else.
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

// observe takes one event. With the lock.
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
			return // what was understood of it stands
		}
		l.entries[e.ID] = ServiceEntry{Name: name, Created: e.Object.Created, EntryAddresses: addresses}
		l.changed[name] = true
	case object.Delete:
		l.forget(e.ID)
	case object.Broken, object.Synced, object.Forget:
	}
}

func (l *Leader) forget(id object.ID) {
	if _, known := l.entries[id]; known {
		delete(l.entries, id)
		l.changed[Name{id.Namespace, id.Name}] = true
	}
}

// entryOf is a ServiceEntry as the source says that stands before others. With the lock.
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

// term is what one term has found and emitted.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	book    *book
	stored  map[Name]string // as JSON
	emitted map[Name]string
	pending map[Name]bool // to be stored and emitted
	synced  bool
}

// Run is one term, until ctx ends or another process leads.
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
			l.Log.Warn("automatic addresses cannot be stored in etcd, and are not given out until they are; trying again",
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

// load reads what is stored, and tries until it can; false: the context has ended.
func (t *term) load(ctx context.Context) bool {
	for ctx.Err() == nil {
		blobs, _, err := t.store.Blobs(ctx, folder, 0)
		if err == nil {
			for _, blob := range blobs {
				t.take(blob)
			}
			t.all()
			return true
		}
		t.Log.Warn("automatic addresses that are stored cannot be read; trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
	return false
}

// take takes one stored value. What cannot be understood is as nothing: it is replaced, or deleted.
func (t *term) take(blob kv.Blob) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(blob.Path, folder), "/")
	of := Name{namespace, name}
	hosts := Hosts{}
	if err := json.Unmarshal(blob.Raw, &hosts); err != nil {
		t.Log.Warn("the automatic addresses stored for a ServiceEntry cannot be decoded: it gets new ones, unless its status names them", obs.KeyName, of.String(), obs.KeyError, err)
		hosts = nil
	}
	t.stored[of] = string(blob.Raw)
	t.book.Load(of, hosts)
}

// all has everything looked at that was observed so far.
func (t *term) all() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.entries {
		t.changed[Name{id.Namespace, id.Name}] = true
	}
}

// inform hands what has changed to the book; false: a source has not emitted everything yet.
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

// step decides, stores and emits. It says when it is to be done again though nothing changed. After an error,
// kv.ErrDeposed or etcd's, what was decided waits.
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

// giver says who gives new addresses now.
func (t *term) giver() giver {
	switch promoted := t.Promoted == nil || t.Promoted(); {
	case !promoted || t.Lock.Others():
		return others
	case t.Lock.Held():
		return unknown
	}
	return self
}

// perChange is how many values are written in one transaction.
const perChange = 64

// write stores what is pending and differs, in order.
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

// publish emits to the ingester what is pending and stored.
func (t *term) publish() {
	var events []object.Event
	for _, name := range slices.SortedFunc(maps.Keys(t.pending), Name.compare) {
		hosts := map[string][]string{}
		for host, all := range t.book.Addresses(name) {
			for _, a := range all {
				hosts[host] = append(hosts[host], a.String())
			}
		}
		made, err := normal.NewAutomatic(name.Namespace, name.Name, hosts)
		was, emitted := t.emitted[name]
		switch {
		case err != nil || emitted && was == string(made.JSON) || !emitted && len(hosts) == 0: // texts have no error
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

// Origin is that of the objects that are emitted.
func Origin() origin.Origin { return origin.New("", origin.Addresses) }

// report says which ServiceEntries lack an address.
func (t *term) report() {
	problems := t.book.Problems(maxProblems)
	t.problems.Store(&problems)
}

// want says what the status of the cluster's ServiceEntries is to say; nothing while istiod says it.
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
