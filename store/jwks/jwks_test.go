package jwks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// heard contains the events that the ingester received.
type heard struct {
	mu     sync.Mutex
	all    map[object.ID]normal.Keys
	synced bool
}

func (h *heard) emit(events []object.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[object.ID]normal.Keys{}
	}
	for _, e := range events {
		switch e.Op {
		case object.Put:
			h.all[e.ID] = normal.ParseKeys(e.Object)
		case object.Delete:
			delete(h.all, e.ID)
		case object.Synced:
			h.synced = true
		case object.Broken, object.Forget:
		}
	}
}

// say formats the events as one line.
func (h *heard) say() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, id := range slices.SortedFunc(maps.Keys(h.all), object.ID.Compare) {
		all = append(all, fmt.Sprintf("%s/%s=%s(%s)", id.Namespace, id.Name, h.all[id].Set, h.all[id].Reason))
	}
	return fmt.Sprintf("%v%v", h.synced, all)
}

// world is a set of servers: the response of each, and the requests that they received.
type world struct {
	mu    sync.Mutex
	says  map[string]string // "": it fails
	asked map[string]int
}

func (w *world) set(says map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.says = says
}

func (w *world) fetch(_ context.Context, s normal.KeySource) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	w.asked[s.String()]++
	if keys := w.says[s.String()]; keys != "" {
		return keys, nil
	}
	return "", errors.New("no route")
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func leads(t *testing.T, h *heard, store *kv.Store, epoch kv.Epoch, fetch func(context.Context, normal.KeySource) (string, error)) (l *Leader, stop func()) {
	l = New(Config{Fetch: fetch, Refresh: 10 * time.Millisecond, Emit: h.emit, Log: slog.New(slog.DiscardHandler)})
	return l, kvtest.Run(t, func(ctx context.Context) error { l.Run(ctx, store, epoch); return nil })
}

func ids(names ...string) (all []object.ID) {
	for _, name := range names {
		namespace, uri, _ := strings.Cut(name, "/")
		all = append(all, normal.KeysID(namespace, normal.KeySource{URI: uri}))
	}
	slices.SortFunc(all, object.ID.Compare)
	return all
}

// Keys are fetched again when they may have changed, and emitted for every namespace that names them. The last good
// keys stay while the server fails, also for the next leader, which emits everything before any response. Sources that
// are no longer needed are dropped.
// Promise: security-tenants.md#key-sets
func TestLeaders(t *testing.T) {
	w, etcd := &world{}, kvtest.Start(t)
	store := etcd.Connect()
	w.set(map[string]string{"u:one within 1ms": "K1", "u:two": "K2"})
	h := &heard{}
	l, stop := leads(t, h, store, etcd.Elect("a"), w.fetch)
	l.Need(ids("a/u:one within 1ms", "b/u:one within 1ms", "b/u:two", "b/u:away within 1ms"), false)
	until(t, "what answers is told", func() bool {
		return h.say() == "false[a/u:one within 1ms=K1() b/u:away within 1ms=("+unfetched+") b/u:one within 1ms=K1() b/u:two=K2()]"
	})
	l.Need(ids("a/u:one within 1ms", "b/u:one within 1ms", "b/u:away within 1ms"), true)
	until(t, "what is needed no more is taken back", func() bool {
		return h.say() == "true[a/u:one within 1ms=K1() b/u:away within 1ms=("+unfetched+") b/u:one within 1ms=K1()]"
	})
	until(t, "one is a problem", func() bool {
		p := l.Problems()
		return len(p) == 1 && p[0].ID.Name == "u:away within 1ms" && strings.Contains(p[0].Message, "no route") &&
			strings.Contains(p[0].Message, "refused")
	})
	w.set(map[string]string{"u:one within 1ms": "K3"})
	until(t, "other keys", func() bool {
		return h.say() == "true[a/u:one within 1ms=K3() b/u:away within 1ms=("+unfetched+") b/u:one within 1ms=K3()]"
	})
	w.set(nil)
	last := "true[a/u:one within 1ms=K3(" + unfetched + ") b/u:away within 1ms=(" + unfetched + ") " +
		"b/u:one within 1ms=K3(" + unfetched + ")]"
	until(t, "the server fails, and the keys stand", func() bool { return h.say() == last && len(l.Problems()) == 2 })
	stop()

	h = &heard{}
	l, stop = leads(t, h, store, etcd.Elect("b"), func(ctx context.Context, _ normal.KeySource) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	l.Need(ids("a/u:one within 1ms", "b/u:away within 1ms"), true)
	until(t, "another leader knows what was known, though nobody answers", func() bool {
		return h.say() == "true[a/u:one within 1ms=K3()]"
	})
	stop()

	h = &heard{}
	l, _ = leads(t, h, store, etcd.Elect("c"), w.fetch)
	l.Need(nil, true)
	until(t, "nothing is needed", func() bool { return h.say() == "true[]" })
	until(t, "nothing is stored", func() bool {
		blobs, _, err := store.Blobs(t.Context(), folder, 0)
		return err == nil && len(blobs) == 0
	})
}

// Of a namespace with ten thousand sources a few are fetched, few at a time, and a problem reports it. None of its
// servers answers, and sources of other namespaces are fetched nevertheless.
// Promise: security-tenants.md#key-sets
func TestOneNamespaceHoldsUpNoOther(t *testing.T) {
	etcd := kvtest.Start(t)
	var mu sync.Mutex
	asking, highest, asked := 0, 0, map[string]bool{}
	h := &heard{}
	l, _ := leads(t, h, etcd.Connect(), etcd.Elect("a"), func(ctx context.Context, s normal.KeySource) (string, error) {
		if !strings.HasPrefix(s.URI, "u:hostile") {
			return "K", nil
		}
		mu.Lock()
		asking++
		highest, asked[s.URI] = max(highest, asking), true
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond): // so does a timeout end it
		}
		mu.Lock()
		asking--
		mu.Unlock()
		return "", errors.New("too late")
	})
	needed := []string{"z/u:good"}
	for i := range 10000 {
		needed = append(needed, fmt.Sprintf("hostile/u:hostile-%05d within 5ms", i))
	}
	l.Need(ids(needed...), true)
	until(t, "the other namespace has its keys", func() bool { return strings.Contains(h.say(), "z/u:good=K()") })
	until(t, "each that is fetched was asked for", func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) == MostOfNamespace })
	mu.Lock()
	if highest > parallelOfNamespace {
		t.Errorf("%d were asked at once", highest)
	}
	mu.Unlock()
	until(t, "the rest is named", func() bool {
		for _, p := range l.Problems() {
			if p.ID.Namespace == "hostile" && p.ID.Name == "" && strings.Contains(p.Message, fmt.Sprint(10000-MostOfNamespace)) {
				return true
			}
		}
		return false
	})
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != MostOfNamespace {
		t.Errorf("%d were asked for", len(asked))
	}
}

// If a server fails repeatedly, the intervals between requests grow, and are never the same for several sources.
func TestBackOff(t *testing.T) {
	at := time.Now()
	term := &term{Leader: New(Config{Refresh: Refresh, Log: slog.New(slog.DiscardHandler)}), sources: map[normal.KeySource]*source{{URI: "u"}: {}}, by: map[string]int{}, changed: map[normal.KeySource]bool{}}
	s := term.sources[normal.KeySource{URI: "u"}]
	var pauses []time.Duration
	for range 12 {
		s.asking = true
		term.applyAnswer(answer{of: normal.KeySource{URI: "u"}, err: errors.New("no")}, at)
		pauses = append(pauses, s.due.Sub(at))
	}
	if pauses[0] < firstRetry*9/10 || pauses[0] > firstRetry*11/10 || pauses[3] < pauses[0]*4 || pauses[11] < lastRetry*9/10 || pauses[11] > lastRetry*11/10 || pauses[10] == pauses[11] {
		t.Error(pauses)
	}
	s.asking = true
	term.applyAnswer(answer{of: normal.KeySource{URI: "u"}, keys: "K"}, at)
	if got := s.due.Sub(at); s.failed != 0 || got < Refresh*9/10 || got > Refresh*11/10 {
		t.Error(got)
	}
}

// Many namespaces with as many sources as allowed share the total limit, and leave the others their part.
// Promise: security-tenants.md#key-sets
func TestNamespacesShareWhatThereIs(t *testing.T) {
	var needed []string
	for i := range 100 {
		for j := range MostOfNamespace {
			needed = append(needed, fmt.Sprintf("n%02d/u:%02d-%02d", i, i, j))
		}
	}
	l := New(Config{Refresh: Refresh, Log: slog.New(slog.DiscardHandler)})
	l.Need(ids(append(needed, "z/u:one", "z/u:two")...), true)
	term := &term{Leader: l, sources: map[normal.KeySource]*source{}, changed: map[normal.KeySource]bool{}, stored: map[normal.KeySource]string{}}
	term.needed()
	if len(term.sources) != mostSources || term.left["z"] != 0 || term.sources[normal.KeySource{URI: "u:two"}] == nil {
		t.Errorf("%d sources, of z %d are left", len(term.sources), term.left["z"])
	}
	for namespace, n := range term.left {
		if n < MostOfNamespace/3 || n > MostOfNamespace/2 {
			t.Errorf("%d of namespace %s are not fetched", n, namespace)
		}
	}
}

// For any number of namespaces with servers that do not answer, few requests are in progress at once.
func TestFewAreAskedAtOnce(t *testing.T) {
	etcd := kvtest.Start(t)
	var mu sync.Mutex
	asking, highest, asked := 0, 0, map[string]bool{}
	release := make(chan struct{})
	l, _ := leads(t, &heard{}, etcd.Connect(), etcd.Elect("a"), func(ctx context.Context, s normal.KeySource) (string, error) {
		mu.Lock()
		asking++
		highest, asked[s.URI] = max(highest, asking), true
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-release:
		}
		mu.Lock()
		asking--
		mu.Unlock()
		return "K", nil
	})
	var needed []string
	for i := range 3 * parallel {
		needed = append(needed, fmt.Sprintf("n%02d/u:%02d", i, i))
	}
	l.Need(ids(needed...), true)
	until(t, "as many as may be are asked", func() bool { mu.Lock(); defer mu.Unlock(); return asking == parallel })
	close(release)
	until(t, "all were asked", func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) == len(needed) })
	mu.Lock()
	defer mu.Unlock()
	if highest != parallel {
		t.Errorf("%d were asked at once", highest)
	}
}

// termOf returns a term without etcd that needs some key sets.
func termOf(fetch func(context.Context, normal.KeySource) (string, error), needed []object.ID) *term {
	l := New(Config{Fetch: fetch, Refresh: Refresh, Log: slog.New(slog.DiscardHandler)})
	l.Need(needed, true)
	t := &term{Leader: l, sources: map[normal.KeySource]*source{},
		changed: map[normal.KeySource]bool{}, stored: map[normal.KeySource]string{},
		by: map[string]int{}, fetched: make(chan struct{}, parallel), answers: make(chan answer, parallel)}
	t.needed()
	return t
}

// answered runs the fetches of a term until each source has an answer, and returns the times until the answers.
func answered(t *testing.T, term *term) map[string]time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	began, took := time.Now(), map[string]time.Duration{}
	for len(took) < len(term.sources) && term.await(ctx, term.fetchDue(ctx, &asking, time.Now())) {
		for where, s := range term.sources {
			if _, has := took[where.URI]; !has && (s.wrong != nil || s.keys != "") {
				took[where.URI] = time.Since(began)
			}
		}
	}
	return took
}

// Failing sources of many namespaces do not delay the good source of another namespace, although their failures are
// answered at the end of the rule's time, whenever they were known. Until then they count for their namespace.
// Promise: security-tenants.md#key-sets
func TestFailuresDelayNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		needed := []string{"z/u:good", "slow/u:b-slow", "slow/u:c-silent", "slow/u:d-next"}
		for i := range 2 * parallel {
			needed = append(needed, fmt.Sprintf("n%02d/u:a-%02d", i/2, i))
		}
		took := answered(t, termOf(func(_ context.Context, s normal.KeySource) (string, error) {
			switch s.URI {
			case "u:good":
				return "K", nil
			case "u:b-slow":
				time.Sleep(time.Second)
			case "u:c-silent":
				time.Sleep(defaultTimeout)
			}
			return "", errors.New("no")
		}, ids(needed...)))
		for _, name := range needed {
			_, uri, _ := strings.Cut(name, "/")
			want := map[string]time.Duration{"u:good": 0, "u:d-next": 2 * defaultTimeout}
			if _, has := want[uri]; !has {
				want[uri] = defaultTimeout
			}
			if took[uri] != want[uri] {
				t.Errorf("%s is answered after %v, want %v", uri, took[uri], want[uri])
			}
		}
	})
}

// A namespace whose own sources fail does not delay the source of another namespace by naming it, too.
// Promise: security-tenants.md#key-sets
func TestSharedSourceCountsForTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := termOf(func(_ context.Context, s normal.KeySource) (string, error) {
			if s.URI == "u:1-victim" {
				return "K", nil
			}
			return "", errors.New("no")
		}, ids("a/u:1-victim", "a/u:2", "a/u:3", "a/u:4", "b/u:1-victim"))
		term.sources[normal.KeySource{URI: "u:1-victim"}].due = time.Now().Add(time.Second) // those that fail are first
		took := answered(t, term)
		if took["u:1-victim"] != time.Second || took["u:3"] != defaultTimeout || took["u:4"] != 2*defaultTimeout {
			t.Error(took)
		}
	})
}
