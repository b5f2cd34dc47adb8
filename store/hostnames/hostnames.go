// Package hostnames resolves the addresses of networks' gateways that are known by a DNS name only (load balancers of Kubernetes that have a
// name, meshNetworks), as istiod does (pilot/pkg/model/network.go). The leader asks the DNS servers of its Pod, again whenever an answer
// expires, and emits them to the ingester. The last good answer stays in use while a server does not answer, and where it no longer knows a name.
//
// Owns: dns/ in etcd (the leader), and the objects that say which addresses a name has (normal.ResolvedID).  Reads: which names the ingester
// needs.  Never: asks for other names; is called by planning or pushing; uses an answer for more than where a gateway is (who it is, mTLS
// between the proxies decides).
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

// Where it is in etcd.
const (
	folder = "dns/"
	path   = folder + "gateways"
)

// Bounds.
const (
	MostNames = 1024 // that are resolved
	most      = 16   // addresses of one name
	parallel  = 8    // names that are asked for at once
)

// Problem is what is wrong with a name.
type Problem struct{ Name, Message string }

// Config is what New needs.
type Config struct {
	Resolve func(ctx context.Context, name string, before []string) Answer // Servers.Resolve
	Emit    func([]object.Event)
	Log     *slog.Logger
}

// Answer is what became of a question for a name.
type Answer struct {
	Addresses []string      // IPs, sorted; those from before where nothing better is known
	Again     time.Duration // when to ask again
	Wrong     string        // why not all of it is as the servers say now; empty: it is
}

// Leader has names resolved while this process leads. Its methods may be called from any goroutine.
type Leader struct {
	Config
	wake chan struct{} // one place: other names are needed

	mu    sync.Mutex // a leaf: guards what follows
	names []string
	whole bool

	problems atomic.Pointer[[]Problem]
}

// New resolves nothing yet.
func New(c Config) *Leader { return &Leader{Config: c, wake: make(chan struct{}, 1)} }

// Origin is that of the objects that are emitted.
func Origin() origin.Origin { return origin.New("", origin.DNS) }

// Need says which names are needed from now on, sorted; whole: all that there are, since everything was emitted.
func (l *Leader) Need(names []string, whole bool) {
	l.mu.Lock()
	l.names, l.whole = names, whole
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Problems are those of the term that this process leads in.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// term is what one term knows.
type term struct {
	*Leader
	store   *kv.Store
	epoch   kv.Epoch
	known   map[string]*known
	all     map[string][]string // what is known: addresses by name, without names that have none
	changed map[string]bool     // names whose place in all was not looked at since they changed
	stored  map[string][]string // what etcd has
	before  map[string][]string // what it had when the term began: for names that are not known yet
	emitted map[string]string   // JSON
	left    int                 // names beyond MostNames
	whole   bool
	synced  bool
	running int
	answers chan answered
}

// known is one name.
type known struct {
	addresses []string
	asking    bool
	asked     bool // an answer came
	due       time.Time
	wrong     string
}

type answered struct {
	name string
	Answer
}

// Run is one term, until ctx ends or another process leads.
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
		wait := t.ask(ctx, &asking, time.Now())
		if err := t.publish(ctx); errors.Is(err, kv.ErrDeposed) {
			return
		} else if err != nil && ctx.Err() == nil {
			l.Log.Warn("resolved addresses of gateways' names cannot be stored in etcd, and are not used until they are; trying again",
				obs.KeyError, err)
			wait = min(wait, time.Second)
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case a := <-t.answers:
			t.take(a, time.Now())
			for range len(t.answers) { // what was answered meanwhile is stored together
				t.take(<-t.answers, time.Now())
			}
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
			t.stored = map[string][]string{}
			for _, blob := range blobs {
				if err := json.Unmarshal(blob.Raw, &t.stored); err != nil {
					t.Log.Warn("names of gateways that were resolved before cannot be read: they are resolved again", obs.KeyName, blob.Path,
						obs.KeyError, err)
					t.stored = map[string][]string{"": nil} // another one is written in any case
				}
			}
			t.before = t.stored
			return true
		}
		t.Log.Warn("names of gateways that were resolved before cannot be read; trying again", obs.KeyError, err)
		_ = loop.Pause(ctx, time.Second)
	}
	return false
}

// needed takes over which names are needed.
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

// ask begins to ask for names that are due, and says when the next one is.
func (t *term) ask(ctx context.Context, asking *sync.WaitGroup, now time.Time) (wait time.Duration) {
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
			return wait // an answer comes
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

// take takes an answer.
func (t *term) take(a answered, now time.Time) {
	t.running--
	k := t.known[a.name]
	if k.wrong == "" && a.Wrong != "" {
		t.Log.Warn("the name of a network's gateway cannot be resolved; its last known addresses stay in use", obs.KeyName, a.name,
			obs.KeyReason, a.Wrong)
	}
	t.changed[a.name] = t.changed[a.name] || !slices.Equal(k.addresses, a.Addresses)
	k.asking, k.asked, k.due, k.addresses, k.wrong = false, true, now.Add(a.Again), a.Addresses, a.Wrong
}

// publish stores what is known, where that is another than what is stored, and emits them to the ingester. With all that is known, or was asked for once, the source
// has emitted everything.
func (t *term) publish(ctx context.Context) error {
	if !t.whole {
		return nil // what is not needed yet may be needed still
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

// events are what the ingester is to get of the names that changed.
func (t *term) events() (events []object.Event) {
	for _, name := range slices.Sorted(maps.Keys(t.changed)) {
		addresses := t.all[name]
		was, emitted := t.emitted[name]
		made, err := normal.NewResolved(name, addresses)
		switch {
		case err != nil || addresses == nil && !emitted || addresses != nil && was == string(made.JSON): // texts have no error
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

// maxProblems is how many names are named that cannot be resolved.
const maxProblems = 20

// report says which names cannot be resolved.
func (t *term) report() {
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(t.known)) {
		if k := t.known[name]; k.wrong != "" {
			stands := "it has no address"
			if len(k.addresses) > 0 {
				stands = fmt.Sprintf("what was known stands, %v", k.addresses)
			}
			problems = append(problems, Problem{name, k.wrong + ": " + stands})
		}
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], Problem{"", fmt.Sprintf("%d more names of gateways cannot be resolved", more)})
	}
	if t.left > 0 {
		problems = append(problems, Problem{"", fmt.Sprintf("%d names of gateways are not resolved, %d are at most: those that come first",
			t.left, MostNames)})
	}
	t.problems.Store(&problems)
}
