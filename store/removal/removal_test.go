package removal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// holder is a Holder in memory.
type holder struct {
	mu       sync.Mutex
	held     []object.Loss
	released [][]object.Loss
	all      bool   // Everything
	before   func() // called first in Release; nil: nothing
}

func (g *holder) set(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = nil
	for _, name := range names {
		g.held = append(g.held, object.Loss{ID: object.ID{Kind: "Service", Namespace: "shop", Name: name}})
	}
}

func (g *holder) Everything() bool { return g.all }

func (g *holder) Held() []object.Loss {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.held)
}

func (g *holder) Release(_ context.Context, ids []object.Loss) bool {
	if g.before != nil {
		g.before()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if digestOf(ids) != digestOf(g.held) {
		return false
	}
	g.released, g.held = append(g.released, ids), nil
	return true
}

func (g *holder) times() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.released)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// lead runs a keeper under an epoch until the test ends. ended waits until it ends by itself, a minute at most, and says with what.
func lead(t *testing.T, store *kv.Store, name string, epoch kv.Epoch, holders ...Holder) (k *Keeper, ended func() error) {
	t.Helper()
	k = &Keeper{Store: store, Holders: holders, Name: name, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Lead(ctx, epoch); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return k, func() error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-within(t).Done():
			t.Fatal("it leads for a minute still")
			return nil
		}
	}
}

// held waits until the store says that a set is held; empty: nothing.
func held(t *testing.T, store *kv.Store, digest string) {
	t.Helper()
	ctx := within(t)
	for {
		h, _, err := Read(ctx, store)
		if err != nil {
			t.Fatal(err)
		}
		if h == nil && digest == "" || h != nil && h.Digest == digest {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// decided waits until no approval is waiting for a decision.
func decided(t *testing.T, store *kv.Store) {
	t.Helper()
	ctx := within(t)
	for {
		left, _, err := store.Blobs(ctx, Approvals, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// What is held is shown, an approval lets go exactly what it names, once, and what became of each is remembered.
func TestAcceptOnce(t *testing.T) {
	s, g, other := kvtest.Start(t), &holder{}, &holder{}
	g.set("a", "b", "c")
	other.set("d")
	digest := digestOf(append(g.Held(), other.Held()...))
	lead(t, s.Store, "one", s.Elect("one"), g, other)
	held(t, s.Store, digest)
	h, _, err := Read(within(t), s.Store)
	if err != nil || h.Count != 4 || h.Kinds["Service"] != 4 || !slices.Equal(h.Names, []string{"Service shop/a", "Service shop/b", "Service shop/c", "Service shop/d"}) || h.Leader != "one" {
		t.Errorf("held: %+v, %v", h, err)
	}
	wrong := digestOf(g.Held())
	if _, err := Accept(within(t), s.Store, Approval{Digest: wrong}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), digest) {
		t.Errorf("another digest: %v", err)
	}
	if g.times()+other.times() != 0 {
		t.Fatal("that let something go")
	}
	d, err := Accept(within(t), s.Store, Approval{Digest: digest, Reason: "the shop closes", OSUser: "mallory", EtcdUser: "alice"})
	if err != nil || d.Count != 4 || !d.Applied || g.times() != 1 || other.times() != 1 {
		t.Errorf("accepted: %+v, %v; released %d and %d times", d, err, g.times(), other.times())
	}
	held(t, s.Store, "")
	if _, err := Accept(within(t), s.Store, Approval{Digest: digest}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "nothing is held") {
		t.Errorf("again: %v", err)
	}
	_, decisions, err := Read(within(t), s.Store)
	if err != nil || len(decisions) != 3 || decisions[1].Approval.Reason != "the shop closes" || decisions[1].Approval.OSUser != "mallory" || decisions[1].Kinds["Service"] != 4 {
		t.Errorf("decisions: %+v, %v", decisions, err)
	}
	if left, _, err := s.Store.Blobs(within(t), Approvals, 0); err != nil || len(left) != 0 {
		t.Errorf("approvals that are left: %v, %v", left, err)
	}
}

// What is no approval is refused and taken away, and what it says is bounded; a store full of it does not take the place of
// what was accepted.
func TestGarbageIsRefused(t *testing.T) {
	s, g := kvtest.Start(t), &holder{}
	g.set("a")
	digest := digestOf(g.Held())
	lead(t, s.Store, "one", s.Elect("one"), g)
	held(t, s.Store, digest)
	if _, err := Accept(within(t), s.Store, Approval{Digest: "not one"}); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `"not one" is not a digest: 64 hexadecimal digits`) {
		t.Errorf("what is not a digest is written, or not named: %v", err)
	}
	good := fmt.Sprintf(`{"id":"other","digest":%q}`, digest)
	all := map[string]string{"empty": "", "text": "yes", "list": "[]", "huge": `{"id":"huge","digest":"` + digest + `","reason":"` + strings.Repeat("x", 1<<20) + `"}`,
		"stolen": good, strings.Repeat("long", 500): "x", "a/b": "{}"}
	for i := range 2 * maxRefused {
		all[fmt.Sprint("n", i)] = "{"
	}
	for id, raw := range all {
		s.Put(Approvals+id, raw)
	}
	decided(t, s.Store)
	if g.times() != 0 {
		t.Error("garbage let something go")
	}
	if _, err := Accept(within(t), s.Store, Approval{Digest: digest}); err != nil {
		t.Errorf("after it: %v", err)
	}
	_, decisions, err := Read(within(t), s.Store)
	if err != nil || len(decisions) != maxRefused+1 || !decisions[maxRefused].Applied {
		t.Errorf("%d decisions, %v", len(decisions), err)
	}
	for _, d := range decisions {
		if a := d.Approval; len(a.ID) > maxText || len(a.Reason) > maxText || len(d.Refused) > maxText {
			t.Errorf("a decision of %d bytes", len(fmt.Sprint(d)))
		}
	}
}

// A leader that was replaced decides nothing more, though it still believes that it leads; its successor decides by what it holds
// itself.
func TestLeaderChanges(t *testing.T) {
	s, first, second := kvtest.Start(t), &holder{}, &holder{}
	first.set("a", "b")
	second.set("a")
	digest := digestOf(first.Held())
	old := s.Elect("old")
	_, ended := lead(t, s.Connect(), "old", old, first)
	held(t, s.Store, digest)
	s.Depose(old)
	s.Put(Approvals+"x", fmt.Sprintf(`{"id":"x","digest":%q}`, digest))
	lead(t, s.Connect(), "young", s.Elect("young"), second)
	held(t, s.Store, digestOf(second.Held()))
	if err := ended(); !errors.Is(err, kv.ErrDeposed) { // it is told when it writes next
		t.Errorf("the old leader ended with %v", err)
	}
	decided(t, s.Store)
	if first.times()+second.times() != 0 {
		t.Errorf("an approval of what the young leader does not hold: released %d and %d times", first.times(), second.times())
	}
	if _, decisions, err := Read(within(t), s.Store); err != nil || len(decisions) != 1 || !strings.Contains(decisions[0].Refused, "another set") || decisions[0].Leader != "young" {
		t.Errorf("decisions: %+v, %v", decisions, err)
	}
}

// What changes between the decision and its application is held; the approval is used up.
func TestHeldChangesMeanwhile(t *testing.T) {
	s, g := kvtest.Start(t), &holder{}
	g.set("a", "b")
	digest := digestOf(g.Held())
	g.before = func() { g.before = nil; g.set("a") }
	lead(t, s.Store, "one", s.Elect("one"), g)
	held(t, s.Store, digest)
	if d, err := Accept(within(t), s.Store, Approval{Digest: digest}); !errors.Is(err, ErrRefused) || d.Applied || d.Failed == "" {
		t.Errorf("%+v, %v", d, err)
	}
	held(t, s.Store, digestOf(g.Held()))
	if g.times() != 0 {
		t.Error("something was let go")
	}
}

// A process that does not lead lets go what it holds too, and only that.
func TestFollowersTakeOver(t *testing.T) {
	s, g, same, differs := kvtest.Start(t), &holder{}, &holder{}, &holder{}
	g.set("a", "b")
	same.set("b", "a")
	differs.set("a")
	digest := digestOf(g.Held())
	for _, f := range []*holder{same, differs} {
		k := &Keeper{Store: s.Connect(), Holders: []Holder{f}, Name: "follower", Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Watch(ctx, func() bool { return false }) }()
		t.Cleanup(func() { cancel(); <-done })
	}
	lead(t, s.Store, "one", s.Elect("one"), g)
	held(t, s.Store, digest)
	if _, err := Accept(within(t), s.Store, Approval{Digest: digestOf(nil)}); !errors.Is(err, ErrRefused) {
		t.Errorf("nothing at all: %v", err) // and the followers have seen a decision
	}
	if _, err := Accept(within(t), s.Store, Approval{Digest: digest}); err != nil {
		t.Fatal(err)
	}
	for ctx := within(t); same.times() == 0 && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	if same.times() != 1 || differs.times() != 0 {
		t.Errorf("released %d and %d times", same.times(), differs.times())
	}
}

// A hold ends by itself after the time that was stated for it, whoever led meanwhile, and that is remembered as an approval is; where no
// time was stated, or nothing would be left, it does not.
func TestHoldEndsAfterItsTime(t *testing.T) {
	now := time.Unix(1e6, 0)
	for name, c := range map[string]struct {
		after time.Duration
		all   bool
		goes  bool
	}{"no time": {0, false, false}, "not yet": {3 * time.Hour, false, false}, "everything": {time.Hour, true, false}, "its time is over": {time.Hour, false, true}} {
		k := &term{Keeper: &Keeper{Holders: []Holder{&holder{}, &holder{all: c.all}}, After: c.after}, held: &Held{Since: now.Add(-2 * time.Hour)}}
		if k.over(now) != c.goes {
			t.Errorf("%s: %v", name, !c.goes)
		}
		if k.held = nil; k.over(now) {
			t.Errorf("%s, and nothing is held", name)
		}
	}
	g := &holder{}
	g.set("a", "b")
	raw, err := json.Marshal(&Held{Digest: digestOf(g.Held()), Since: time.Now().Add(-2 * time.Hour), Leader: "before"})
	if err != nil {
		t.Fatal(err)
	}
	s := kvtest.Start(t)
	s.Put("removals/held", string(raw))
	k := &Keeper{Store: s.Store, Holders: []Holder{g}, Name: "a", Log: slog.New(slog.DiscardHandler), After: time.Hour}
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan error, 1)
	epoch := s.Elect("a")
	go func() { done <- k.Lead(ctx, epoch) }()
	held(t, s.Store, "")
	cancel()
	<-done
	_, decisions, err := Read(t.Context(), s.Store)
	if err != nil || g.times() != 1 || len(decisions) != 1 || !decisions[0].Applied || decisions[0].Count != 2 || !strings.Contains(decisions[0].Approval.Reason, "held for 1h") {
		t.Errorf("let go %d times, remembered: %+v, %v", g.times(), decisions, err)
	}
}

// The digest is of the set, not of a text that two sets may share; another cluster's object, and another version, are others.
func TestDigest(t *testing.T) {
	loss := func(group, kind, namespace, name, version string) object.Loss {
		return object.Loss{ID: object.ID{Group: group, Kind: kind, Namespace: namespace, Name: name}, Version: version}
	}
	a, b, east := loss("", "A", "b", "c", ""), loss("", "A", "b", "d", ""), loss("", "A", "b", "c", "")
	east.ID.Origin = origin.New("east", "files")
	if digestOf([]object.Loss{a, b}) != digestOf([]object.Loss{b, a}) {
		t.Error("it depends on order")
	}
	seen := map[string]bool{}
	sets := [][]object.Loss{nil, {a}, {a, b}, {east}, {loss("", "A", "b", "c", "1")}, {loss("", "A", "b", "c", "2")}, {loss("", "Ab", "", "c", "")}, {loss("", "A", "bc", "", "")}, {loss("A", "b", "c", "", "")}, {loss("", "A", "b", "c\nA b/d", "")}}
	for _, losses := range sets {
		seen[digestOf(losses)] = true
	}
	if len(seen) != len(sets) {
		t.Errorf("%d digests of %d sets", len(seen), len(sets))
	}
}
