package plan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// newResolver returns a resolver that has resolved a snapshot.
func newResolver(s *mirror.Snapshot) *resolve.Resolver {
	r := resolve.New(nil)
	r.Step(mirror.Diff(mirror.Empty(), s))
	return r
}

// A Base is at the newest snapshot, although the loop plans it later: configuration that waits, and endpoints. A change
// of the Base changes neither the plan nor the snapshot of the loop.
func TestBaseHasWhatWaits(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		if _, err := l.Base(t.Context()); !errors.Is(err, ErrNotReady) {
			t.Fatalf("without a snapshot: %v", err)
		}
		src.put(shop(t)...)
		pass(time.Second)
		p, err := l.Join(t.Context(), node("shop", "a"), func(Path) {})
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		src.put(svc(t, "shop/new", "10.96.0.9", "http:80:HTTP"))
		src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.1", "10.1.0.2"))
		base, err := l.Base(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		live := p.Set()
		sets := base.Planner.Handles()
		if len(sets) != 1 || base.Resolver.Source() != src.now || base.Planner.Snapshot() != src.now {
			t.Fatalf("%d proxies", len(sets))
		}
		for h, set := range sets {
			if set.Types[0].Get("outbound|80||new.shop.svc.cluster.local") == nil {
				t.Error("configuration that waits is missing")
			}
			if got := addresses(t, set, "outbound|80||"+web); got != "10.1.0.1:8080 10.1.0.2:8080" {
				t.Errorf("endpoints: %s", got)
			}
			if bad := base.Planner.Check(h); len(bad) > 0 {
				t.Errorf("differs from a plan from scratch: %v", bad)
			}
		}
		gone := model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}
		moved, err := base.Apply(t.Context(), src.now.Apply(9, nil, []model.Key{gone}))
		if err != nil || len(moved) != 1 {
			t.Fatalf("%d moved, %v", len(moved), err)
		}
		if p.Set() != live {
			t.Error("the live plan has changed")
		}
		pass(time.Second)
		if p.Set() == live || p.Set().Types[0].Get("outbound|80||"+web) == nil {
			t.Error("the live plan has not followed its source")
		}
	})
}

// A preview ends with its context, and a panic of it is an error. The loop goes on.
func TestBaseFails(t *testing.T) {
	p, _, _ := bigPlanner(t, 400, 40)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	base := &Base{Planner: p.Fork(), Resolver: newResolver(p.Snapshot())}
	if _, err := base.Apply(gone, p.Snapshot().Apply(2, []model.Record{vsOf(t, "ns0/s0", "s0.ns0.svc.cluster.local", "s1.ns0.svc.cluster.local", "")}, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	base = &Base{Planner: p.Fork(), Resolver: newResolver(p.Snapshot()), Crashes: crash.New(slog.New(slog.DiscardHandler))}
	base.Planner.input.Pool = nil
	if _, err := base.Apply(t.Context(), p.Snapshot().Apply(2, []model.Record{svc(t, "ns0/other", "10.99.0.1", "http:80:HTTP")}, nil)); err == nil {
		t.Error("a panic is no error")
	}
	if bad := p.Check(slices.Collect(maps.Keys(p.handles))[0]); len(bad) > 0 {
		t.Errorf("the planner differs from a plan from scratch: %v", bad)
	}
}

// BenchmarkFreeze measures how long the loop is occupied by a preview: 20,000 proxies in 50 scopes of 1,000 services.
func BenchmarkFreeze(b *testing.B) {
	p, _, _ := bigPlanner(b, 1000, 50)
	for i := range 20000 {
		n := node(fmt.Sprintf("ns%d", i%50), fmt.Sprintf("p%d", i))
		p.Join(n)
	}
	b.ReportAllocs()
	b.Run("loop", func(b *testing.B) {
		for range b.N {
			p.freeze()
		}
	})
	b.Run("all", func(b *testing.B) {
		for range b.N {
			p.Fork()
		}
	})
}
