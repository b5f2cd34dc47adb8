package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/lead"
)

// Of two revisions that share an etcd only the leader of the promoted one may write to Kubernetes, at no moment both, and each when it is its turn.
func TestPromotedRevisionWrites(t *testing.T) {
	s := kvtest.Start(t)
	var mu sync.Mutex
	told := map[string]int{}
	writer := func(revision string) *kubernetesWriter {
		store, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Revision: revision, Endpoints: s.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		c := &config{env: environment{podName: revision}, lease: 3 * time.Second}
		elector, err := lead.New(lead.Config{Store: store, Name: revision, Lease: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		w, err := newKubernetesWriter(c, store, elector, func() {
			mu.Lock()
			defer mu.Unlock()
			told[revision]++
		}, slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		kvtest.Run(t, func(ctx context.Context) error {
			_ = elector.Run(ctx, func(ctx context.Context, epoch kv.Epoch) error { // its error is the context's
				w.lead(ctx, epoch)
				return nil
			})
			return nil
		})
		return w
	}
	// only waits until the one may write, and fails where both may meanwhile.
	only := func(one, other *kubernetesWriter) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // a poll, not a guess of when
			_, err := one.Until(t.Context())
			if err == nil {
				if _, also := other.Until(t.Context()); also == nil {
					t.Fatal("both may write")
				}
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("it may not write: %v; promoted: %v and %v", err, one.Promoted(), other.Promoted())
			}
		}
	}
	first := writer("default")
	only(first, &kubernetesWriter{ingester: first.ingester, elector: &lead.Elector{}}) // nobody else
	second := writer("canary")
	only(first, second)
	for _, turn := range []struct {
		revision   string
		one, other *kubernetesWriter
	}{{"canary", second, first}, {"default", first, second}} {
		if err := s.Promote(t.Context(), turn.revision); err != nil {
			t.Fatal(err)
		}
		only(turn.one, turn.other)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(told); got != "map[canary:2 default:3]" {
		t.Errorf("changes were told %s times", got)
	}
}
