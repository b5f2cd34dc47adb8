package acknowledged

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// replica is a Loop whose streams the test simulates.
type replica struct {
	notified, unsettled atomic.Int64
	taken               atomic.Int64 // calls of Unsettled
	refused             atomic.Pointer[[]Refusal]
}

func start(t *testing.T, store *kv.Store, name string) (*replica, func()) {
	r := &replica{}
	r.refused.Store(&[]Refusal{})
	l := New(Config{Name: name, Every: time.Millisecond, Log: slog.New(slog.DiscardHandler), Notified: r.notified.Load,
		Unsettled: func() func() int { r.taken.Add(1); return func() int { return int(r.unsettled.Load()) } },
		Refused:   func() []Refusal { return *r.refused.Load() }})
	return r, kvtest.Run(t, func(ctx context.Context) error { return l.Run(ctx, store) })
}

// says waits until the leader has this result: the revision that both replicas have acknowledged, the replicas that are
// waited for, and the refused objects.
func says(t *testing.T, c *Collector, upTo int64, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) { // a poll, not a guess of when
		if now := c.Now(); now != nil {
			revision, waiting := now.Acknowledged([]string{"a", "b"}, upTo)
			got = fmt.Sprint(revision, waiting)
			for _, r := range now.Refused {
				got += " " + r.Object.Name + ":" + r.Text
			}
			if got == want {
				return
			}
		}
	}
	t.Fatalf("the leader knows %q, want %q", got, want)
}

func object(name string) model.Key {
	return model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: name}
}

// The leader asks for a revision; each replica answers once its streams have been notified and have acknowledged it.
// Nothing is written while no leader asks. Another leader is answered again, and receives refusals as they come and go.
func TestReplicasAnswer(t *testing.T) {
	etcd := kvtest.Start(t)
	store := etcd.Connect()
	epoch := etcd.Elect("first")
	c := NewCollector(slog.New(slog.DiscardHandler))
	stop := kvtest.Run(t, func(ctx context.Context) error { return c.Run(ctx, store, epoch) })
	a, _ := start(t, etcd.Connect(), "a")
	b, stopB := start(t, etcd.Connect(), "b")
	a.notified.Store(5)
	b.notified.Store(9)
	says(t, c, 7, "0 [a b]")
	if a.taken.Load()+b.taken.Load() != 0 {
		t.Error("a replica has looked at its streams, and nobody has asked")
	}
	ask := func(epoch kv.Epoch, revision int64) {
		t.Helper()
		if err := c.Await(t.Context(), store, epoch, revision); err != nil {
			t.Fatal(err)
		}
	}
	a.unsettled.Store(2)
	ask(epoch, 7)
	says(t, c, 7, "0 [a]") // b is at 9, a has not planned it
	a.notified.Store(8)
	for deadline := time.Now().Add(time.Minute); a.taken.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	says(t, c, 7, "0 [a]") // its streams have not acknowledged
	a.notified.Store(20)   // what comes later is not waited for
	a.unsettled.Store(0)
	says(t, c, 7, "8 []")
	before := revisionOf(t, etcd)
	b.notified.Store(30)
	ask(epoch, 6)
	ask(epoch, 7)
	says(t, c, 7, "8 []")
	if n := a.taken.Load() + b.taken.Load(); n != 2 {
		t.Errorf("the streams were looked at %d times for one question", n)
	}
	if after := revisionOf(t, etcd); after != before {
		t.Errorf("%d writes, and nothing new is asked", after-before)
	}

	a.refused.Store(&[]Refusal{{object("bad"), "no"}, {object("bad"), "twice"}, {object("worse"), strings.Repeat("x", 2*maxText)}})
	says(t, c, 7, "8 [] bad:no worse:"+strings.Repeat("x", maxText))
	a.refused.Store(&[]Refusal{{object("bad"), "no"}})
	says(t, c, 7, "8 [] bad:no")

	stop()
	if c.Now() != nil {
		t.Error("answers stay after the term")
	}
	etcd.Depose(epoch)
	next := etcd.Elect("second")
	kvtest.Run(t, func(ctx context.Context) error { return c.Run(ctx, store, next) })
	says(t, c, 3, "0 [a b] bad:no")
	ask(next, 3)
	says(t, c, 3, "20 [] bad:no")
	stopB()
	says(t, c, 3, "0 [b] bad:no")
}

// A leader that asks no questions deletes the question of the one before, and replicas delete their answers; a deposed
// leader deletes nothing.
func TestQuestionIsWithdrawn(t *testing.T) {
	etcd := kvtest.Start(t)
	store, log := etcd.Connect(), slog.New(slog.DiscardHandler)
	first := etcd.Elect("first")
	withdraw := func(epoch kv.Epoch) {
		t.Helper()
		if err := Withdraw(t.Context(), store, epoch, log); err != nil {
			t.Fatal(err)
		}
	}
	before := revisionOf(t, etcd)
	withdraw(first)
	if after := revisionOf(t, etcd); after != before {
		t.Errorf("%d writes, and nothing was asked", after-before)
	}
	c := NewCollector(log)
	kvtest.Run(t, func(ctx context.Context) error { return c.Run(ctx, store, first) })
	a, _ := start(t, etcd.Connect(), "a")
	b, _ := start(t, etcd.Connect(), "b")
	a.notified.Store(9)
	b.notified.Store(9)
	a.refused.Store(&[]Refusal{{object("bad"), "no"}})
	if err := c.Await(t.Context(), store, first, 7); err != nil {
		t.Fatal(err)
	}
	says(t, c, 7, "9 [] bad:no")
	etcd.Depose(first)
	second := etcd.Elect("second")
	withdraw(first)
	if blobs, _, err := store.Blobs(t.Context(), awaited, 0); err != nil || len(blobs) != 1 {
		t.Fatalf("a leader of before has left %v, %v", blobs, err)
	}
	withdraw(second)
	says(t, c, 7, "0 [a b]")
	if blobs, _, err := store.Blobs(t.Context(), folder, 0); err != nil || len(blobs) != 0 {
		t.Errorf("answers are left: %v, %v", blobs, err)
	}
	third := NewCollector(log)
	if err := third.Await(t.Context(), store, second, 8); err != nil {
		t.Fatal(err)
	}
	kvtest.Run(t, func(ctx context.Context) error { return third.Run(ctx, store, second) })
	says(t, third, 8, "9 [] bad:no") // the first answer has the refusals
}

// revisionOf returns the revision of the store, which each write increases.
func revisionOf(t *testing.T, etcd *kvtest.Server) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	folders, err := etcd.Connect().Follow(ctx, folder)
	if err != nil {
		t.Fatal(err)
	}
	return (<-folders).Revision
}

// Whatever a replica writes, the leader's cost is within its limits.
func TestAnswersAreBounded(t *testing.T) {
	var many []Refusal
	for n := range 2 * maxRefusals {
		many = append(many, Refusal{object(fmt.Sprintf("f%04d", n)), "x"})
	}
	many = append(many, Refusal{object("a/b"), "no key"}, Refusal{object(strings.Repeat("n", maxPath)), "too long"})
	if n := len(entries(many)); n != maxRefusals {
		t.Errorf("%d entries", n)
	}
	if _, _, err := decode(make([]byte, maxEncoded+1)); err == nil {
		t.Error("a long answer is read")
	}
	if _, refused, err := decode([]byte(`{"replica":"a","refused":[{"record":"Nonsense/x"},{"record":"` + object("f").Path() + `"}]}`)); err != nil || len(refused) != 1 {
		t.Errorf("%v, %v", refused, err)
	}
}
