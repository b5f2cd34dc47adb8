package promoted

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// writerOf returns the writer of a process of one revision, which is a candidate until the test ends.
func writerOf(t *testing.T, s *kvtest.Server, revision string, changed func()) *Writer {
	t.Helper()
	store, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Revision: revision, Endpoints: s.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	elector, err := lead.New(lead.Config{Store: store, Name: revision, Lease: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Store: store, Ingester: elector, Name: revision, Lease: 3 * time.Second, Changed: changed, Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	kvtest.Run(t, func(ctx context.Context) error {
		_ = elector.Run(ctx, func(ctx context.Context, epoch kv.Epoch) error { // its error is the context's
			w.Lead(ctx, epoch)
			return nil
		})
		return nil
	})
	return w
}

// until polls, at most for a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) { // a poll, not a guess of when
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Of two revisions that share an etcd, only the leader of the promoted one may write to Kubernetes. They never may
// both, and each may after its promotion.
func TestPromotedRevisionWrites(t *testing.T) {
	s := kvtest.Start(t)
	var mu sync.Mutex
	changes := map[string]int{}
	writer := func(revision string) *Writer {
		return writerOf(t, s, revision, func() {
			mu.Lock()
			defer mu.Unlock()
			changes[revision]++
		})
	}
	// only waits until the one may write, and fails where both may.
	only := func(one, other *Writer) {
		t.Helper()
		until(t, one.Store.RevisionName()+" writes", func() bool {
			if _, err := one.Until(t.Context()); err != nil {
				return false
			}
			if _, also := other.Until(t.Context()); also == nil {
				t.Fatal("both may write")
			}
			return true
		})
	}
	first := writer("default")
	only(first, &Writer{}) // nobody else
	second := writer("canary")
	only(first, second)
	for _, turn := range []struct {
		revision   string
		one, other *Writer
	}{{"canary", second, first}, {"default", first, second}} {
		if err := s.Promote(t.Context(), turn.revision); err != nil {
			t.Fatal(err)
		}
		only(turn.one, turn.other)
	}
	until(t, "the last change is changes, too", func() bool { // its writer hears of it while the other one writes already
		mu.Lock()
		defer mu.Unlock()
		return changes["canary"]+changes["default"] >= 5
	})
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(changes); got != "map[canary:2 default:3]" {
		t.Errorf("changes were changes %s times", got)
	}
	if p := append(first.Problems(), second.Problems()...); len(p) > 0 {
		t.Errorf("problems: %v", p)
	}
}

// Beside an older build, which writes without the election, a canary writes nothing until an operator promotes it, and
// reports why.
func TestCanaryBesideOlderBuildWritesNothing(t *testing.T) {
	s := kvtest.Start(t)
	s.MustCommit(kv.Batch{Epoch: s.Elect("older")})
	canary := writerOf(t, s, "canary", func() {})
	until(t, "it says why it writes nothing", func() bool {
		p := canary.Problems()
		return len(p) == 1 && strings.Contains(p[0].Message, "navarchctl store promote canary")
	})
	if _, err := canary.Until(t.Context()); err == nil {
		t.Error("it may write")
	}
	if err := s.Promote(t.Context(), "canary"); err != nil {
		t.Fatal(err)
	}
	until(t, "it writes once it is promoted", func() bool {
		_, err := canary.Until(t.Context())
		return err == nil && canary.Problems() == nil
	})
}
