// Package hostnames resolves the DNS names of gateways between networks, if their IP addresses are not configured. The
// names come from load balancers of Kubernetes and from meshNetworks, as in istiod (pilot/pkg/model/network.go). The
// elected leader queries the DNS servers of its Pod, and repeats a query when its response expires. It emits the
// addresses to the ingester (store/ingest). The last good response stays in use while no server answers, and after the
// name has been removed from DNS.
//
// Owns: the folder dns/ in etcd, which only the leader writes, and the objects with the addresses of names. Reads: the
// names that the ingester needs. Never: resolves other names; is called by code that plans or pushes configuration;
// derives anything but a gateway's address from a response (mTLS between the proxies verifies the gateway's identity).
package hostnames

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// Paths in etcd.
const (
	folder = "dns/"
	path   = folder + "gateways"
)

// Bounds.
const (
	MostNames = 1024 // largest number of resolved names
	most      = 16   // largest number of addresses of one name
	parallel  = 8    // largest number of concurrent resolutions
)

// Problem is a problem of one name. A Problem with an empty Name is about several names, and states their number.
type Problem struct{ Name, Message string }

// Config configures a Leader. All fields are required.
type Config struct {
	// Resolve resolves one name, as Servers.Resolve does. Up to 8 goroutines call it at a time.
	Resolve func(ctx context.Context, name string, before []string) Answer
	// Emit passes objects to the ingester. Run calls it.
	Emit func([]object.Event)
	Log  *slog.Logger
}

// Answer is the result of resolving a name.
type Answer struct {
	Addresses []string      // IP addresses, sorted as strings; may be empty or shared with before
	Again     time.Duration // pause before the next resolution
	Wrong     string        // why Addresses may be incomplete or old; empty: all queries succeeded
}

// Leader resolves names while this process is the elected leader (Run). Its methods are safe for concurrent use, but
// only one call of Run may be in progress. Config must not be changed after New.
type Leader struct {
	Config
	wake chan struct{} // capacity 1; receives a value when other names are needed

	mu    sync.Mutex // guards names and whole
	names []string   // arguments of the last Need
	whole bool

	problems atomic.Pointer[[]Problem] // nil: this process does not lead
}

// New returns a Leader that resolves nothing yet.
func New(c Config) *Leader { return &Leader{Config: c, wake: make(chan struct{}, 1)} }

// Origin returns the origin of the emitted objects.
func Origin() origin.Origin { return origin.New("", origin.DNS) }

// Need sets the names to resolve from now on. The slice names must be sorted, without duplicates, and must not change
// afterwards. The parameter whole means that names is complete, because every source has emitted all its objects. Run
// emits addresses only after a call with whole. Only the first MostNames names are resolved. Need does not block.
func (l *Leader) Need(names []string, whole bool) {
	l.mu.Lock()
	l.names, l.whole = names, whole
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Problems returns the problems of the present term (of leadership), sorted by name. At most 20 problems have a name.
// Up to two problems without a name follow. They state how many further names have problems. The result is empty if
// there are no problems. It is nil while this process does not lead, and until this process has published the addresses
// in the term. The caller must not change it.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// term is the state of one term of leadership.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	known   map[string]*known
	all     map[string][]string // known addresses by name; names without an address are missing
	changed map[string]bool     // names whose changes are not emitted yet
	stored  map[string][]string // the addresses in etcd
	before  map[string][]string // the addresses in etcd at the beginning of the term, for names that are needed later
	emitted map[string]string   // JSON of the object last emitted for each name
	left    int                 // number of names beyond MostNames
	whole   bool                // Need was called with whole in this term
	synced  bool                // Synced was emitted
	running int                 // number of resolutions in progress
	answers chan answered
}

// known is the state of one name.
type known struct {
	addresses []string
	asking    bool      // a resolution is in progress
	asked     bool      // a resolution has ended
	due       time.Time // time of the next resolution
	wrong     string    // Answer.Wrong of the last resolution
}

type answered struct {
	name string
	Answer
}

// Run resolves names for one term of leadership, epoch. It blocks until ctx ends, or until a write fails because
// another process leads. Other errors of etcd are logged, and the work is retried.
func (l *Leader) Run(ctx context.Context, store *kv.Store, epoch kv.Epoch) {
	defer l.problems.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	t := &term{Leader: l, store: store, epoch: epoch, known: map[string]*known{}, all: map[string][]string{}, changed: map[string]bool{},
		emitted: map[string]string{}, answers: make(chan answered, parallel)}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	if !t.load(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.needed()
		wait := t.resolveDue(ctx, &asking, time.Now())
		if err := t.publish(ctx); errors.Is(err, kv.ErrDeposed) {
			return
		} else if err != nil && ctx.Err() == nil {
			l.Log.Warn("resolved addresses of gateways cannot be stored in etcd, and are not used until they are; trying again",
				obs.KeyError, err)
			wait = min(wait, time.Second)
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case a := <-t.answers:
			t.applyAnswer(a, time.Now())
			for range len(t.answers) { // all responses that wait are stored together
				t.applyAnswer(<-t.answers, time.Now())
			}
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// load reads the stored addresses, and retries until it succeeds. It returns false if ctx ends first.
func (t *term) load(ctx context.Context) bool {
	for ctx.Err() == nil {
		blobs, _, err := t.store.Blobs(ctx, folder, 0)
		if err == nil {
			t.stored = map[string][]string{}
			for _, blob := range blobs {
				if err := json.Unmarshal(blob.Raw, &t.stored); err != nil {
					t.Log.Warn("stored addresses of gateways cannot be decoded: their names are resolved again", obs.KeyName, blob.Path,
						obs.KeyError, err)
					t.stored = map[string][]string{"": nil} // differs from valid content, so it is written again
				}
			}
			t.before = t.stored
			return true
		}
		t.Log.Warn("stored addresses of gateways cannot be read from etcd; trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
	return false
}

// needed applies the names of the last Need. When all sources are complete, names that are no longer needed are
// dropped.
func (t *term) needed() {
	t.mu.Lock()
	names, whole := t.names, t.whole || t.Leader.whole
	t.mu.Unlock()
	t.whole = whole
	t.left = max(0, len(names)-MostNames)
	names = names[:len(names)-t.left]
	for _, name := range names {
		if t.known[name] == nil {
			t.known[name] = &known{addresses: t.before[name]}
			t.changed[name] = true
		}
	}
	if !whole {
		return
	}
	for name, k := range t.known {
		if _, needed := slices.BinarySearch(names, name); !needed && !k.asking {
			delete(t.known, name)
			t.changed[name] = true
		}
	}
}

// resolveDue begins the resolutions that are due, and returns the time until the next one, at most an hour.
func (t *term) resolveDue(ctx context.Context, asking *sync.WaitGroup, now time.Time) (wait time.Duration) {
	wait = time.Hour
	for _, name := range slices.SortedFunc(maps.Keys(t.known), func(a, b string) int {
		return cmp.Or(t.known[a].due.Compare(t.known[b].due), cmp.Compare(a, b))
	}) {
		k := t.known[name]
		switch left := k.due.Sub(now); {
		case k.asking:
		case left > 0:
			return min(wait, left)
		case t.running == parallel:
			return wait // a response will wake the loop
		default:
			k.asking = true
			t.running++
			before := k.addresses
			asking.Go(func() {
				a := t.Resolve(ctx, name, before)
				select {
				case t.answers <- answered{name, a}:
				case <-ctx.Done():
				}
			})
		}
	}
	return wait
}

// applyAnswer stores the result of a resolution.
func (t *term) applyAnswer(a answered, now time.Time) {
	t.running--
	k := t.known[a.name]
	if k.wrong == "" && a.Wrong != "" {
		t.Log.Warn("resolution of the name of a network's gateway failed, or was incomplete; known addresses stay in use", obs.KeyName, a.name,
			obs.KeyReason, a.Wrong)
	}
	t.changed[a.name] = t.changed[a.name] || !slices.Equal(k.addresses, a.Addresses)
	k.asking, k.asked, k.due, k.addresses, k.wrong = false, true, now.Add(a.Again), a.Addresses, a.Wrong
}

// publish stores new addresses in etcd and emits them to the ingester. Once each needed name has an address or a
// response, publish emits Synced. Before the sources are complete, publish has no effect. Errors are those of
// kv.Store.ChangeFenced. After an error, the changes stay pending.
func (t *term) publish(ctx context.Context) error {
	if !t.whole {
		return nil // a stored name that is not needed yet may still become needed
	}
	ready := true
	for _, k := range t.known {
		ready = ready && (k.asked || len(k.addresses) > 0)
	}
	for name := range t.changed {
		if k := t.known[name]; k != nil && len(k.addresses) > 0 {
			t.all[name] = k.addresses
		} else {
			delete(t.all, name)
		}
	}
	if !maps.EqualFunc(t.all, t.stored, slices.Equal) {
		raw, err := json.Marshal(t.all)
		if err != nil {
			return err
		}
		if _, err := t.store.ChangeFenced(ctx, t.epoch, kv.BlobChange{Put: []kv.Blob{{Path: path, Raw: raw}}}); err != nil {
			return err
		}
		t.stored = maps.Clone(t.all)
	}
	t.report()
	events := t.events()
	if ready && !t.synced {
		t.synced = true
		events = append(events, object.Event{Op: object.Synced, ID: object.ID{Origin: Origin()}})
	}
	if len(events) > 0 {
		t.Emit(events)
	}
	return nil
}

// events returns the events for names that changed.
func (t *term) events() (events []object.Event) {
	for _, name := range slices.Sorted(maps.Keys(t.changed)) {
		addresses := t.all[name]
		was, emitted := t.emitted[name]
		made, err := normal.NewResolved(name, addresses) // err is nil: strings always encode
		switch {
		case err != nil || addresses == nil && !emitted || addresses != nil && was == string(made.JSON):
		case addresses == nil:
			delete(t.emitted, name)
			events = append(events, object.Event{Op: object.Delete, ID: normal.ResolvedID(name)})
		default:
			t.emitted[name] = string(made.JSON)
			events = append(events, object.Event{Op: object.Put, ID: made.ID, Object: made, Location: made.Location})
		}
	}
	clear(t.changed)
	return events
}

// maxProblems is the largest number of names in problems; further names are counted.
const maxProblems = 20

// report stores the problems of the known names for Problems.
func (t *term) report() {
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(t.known)) {
		if k := t.known[name]; k.wrong != "" {
			stands := "no address is in use"
			if len(k.addresses) > 0 {
				stands = fmt.Sprintf("in use are %v", k.addresses)
			}
			problems = append(problems, Problem{name, k.wrong + "; " + stands})
		}
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], Problem{"", fmt.Sprintf("%d more names of gateways are not resolved completely", more)})
	}
	if t.left > 0 {
		problems = append(problems, Problem{"", fmt.Sprintf("%d names of gateways are not resolved, only the first %d by name are",
			t.left, MostNames)})
	}
	t.problems.Store(&problems)
}
