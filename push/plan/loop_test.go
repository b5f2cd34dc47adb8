package plan

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// testSource is a source in memory.
type testSource struct {
	now *mirror.Snapshot
	box *loop.Box[mirror.Change]
}

func newTestSource() *testSource { return &testSource{box: loop.NewBox(mirror.Merge)} }

func (f *testSource) Current() *mirror.Snapshot { return f.now }

func (f *testSource) Subscribe() (*loop.Box[mirror.Change], func()) { return f.box, func() {} }

func (f *testSource) put(records ...model.Record) { f.apply(records) }

func (f *testSource) apply(puts []model.Record, deletes ...model.Key) {
	if f.now == nil {
		f.now = mirror.Empty()
	}
	c := f.now.Apply(f.now.Revision()+1, puts, deletes)
	f.now = c.New
	f.box.Put(c)
}

// inBubble runs a loop in simulated time.
func inBubble(t *testing.T, cfg Config, f func(t *testing.T, l *Loop, src *testSource)) {
	synctest.Test(t, func(t *testing.T) {
		src := newTestSource()
		cfg.Source = src
		if cfg.Logger == nil {
			cfg.Logger = slog.New(slog.DiscardHandler)
		}
		l, err := NewLoop(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		}()
		f(t, l, src)
	})
}

func shop(t *testing.T) []model.Record {
	return []model.Record{svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), svc(t, "shop/db", "10.96.0.2", "tcp:5432:TCP"),
		eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.1")}
}

// pass advances the time and lets the loop do the work that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// moves records at which times, and by which path, a proxy is notified.
type moves struct {
	mu    sync.Mutex
	start time.Time
	notified
}

type notified struct {
	at    []time.Duration
	paths []Path
}

func (m *moves) moved(l Path) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.paths = append(m.at, time.Since(m.start)), append(m.paths, l)
}

func (m *moves) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start, m.notified = time.Now(), notified{}
}

func (m *moves) get() notified {
	m.mu.Lock()
	defer m.mu.Unlock()
	return notified{slices.Clone(m.at), slices.Clone(m.paths)}
}

func TestJoinWaitsForASnapshot(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		if _, err := l.Join(t.Context(), node("shop", "a"), nil); !errors.Is(err, ErrNotReady) {
			t.Errorf("Join without a snapshot: %v, want ErrNotReady", err)
		}
		src.put(shop(t)...)
		p, err := l.Join(t.Context(), node("shop", "a"), nil)
		if err != nil || p.Set().Types[xds.Cluster].Get("outbound|80||"+web) == nil {
			t.Fatalf("Join: %v", err)
		}
		if l.Revision() != 1 || l.Stats().Proxies != 1 {
			t.Errorf("revision %d, %+v", l.Revision(), l.Stats())
		}
		p.Leave()
		pass(10 * time.Second)
		if st := l.Stats(); st != (Stats{}) {
			t.Errorf("%+v is left", st)
		}
	})
}

// A proxy that reconnects soon receives its previous views, which were kept current meanwhile: nothing is planned
// again.
func TestViewsLinger(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		join := func() *Proxy {
			p, err := l.Join(t.Context(), node("shop", "a"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		first := join()
		before := first.planned.Load().scope
		first.Leave()
		pass(9 * time.Second)
		src.put(vsOf(t, "shop/lone", web, web, ""))
		pass(500 * time.Millisecond)
		second := join()
		if second.planned.Load().scope != before {
			t.Error("the scope was planned again")
		}
		if second.Set().Revision != l.Revision() {
			t.Errorf("revision %d, want %d", second.Set().Revision, l.Revision())
		}
		second.Leave()
		pass(10 * time.Second)
		third := join()
		if third.planned.Load().scope == before {
			t.Error("the scope was kept for ever")
		}
	})
}

// A proxy that joins or refreshes receives all that the source published before, whatever the debounce time.
func TestJoinDrains(t *testing.T) {
	inBubble(t, Config{DebounceAfter: time.Hour, DebounceMax: 2 * time.Hour}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		var m moves
		m.reset()
		first, _ := l.Join(t.Context(), node("shop", "a"), m.moved)
		src.put(entryOf(t, "shop/x", "x.org", ""))
		second, err := l.Join(t.Context(), node("else", "b"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*Proxy{first, second} {
			if p.Set().Types[xds.Cluster].Get("outbound|80||x.org") == nil || p.Set().Revision != 2 {
				t.Errorf("%s has not what was published, but revision %d", p.Node.Name, p.Set().Revision)
			}
		}
		if len(m.get().at) != 1 {
			t.Errorf("the first was told %d times", len(m.get().at))
		}
		src.put(entryOf(t, "shop/y", "y.org", ""))
		if err := second.Refresh(t.Context()); err != nil || first.Set().Types[xds.Cluster].Get("outbound|80||y.org") == nil || first.Set().Revision != 3 {
			t.Errorf("after a refresh there is revision %d, %v", first.Set().Revision, err)
		}
	})
}

// Fifty VirtualServices that arrive one by one result in one plan, and in one push for each proxy.
func TestConfigurationIsDebounced(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		var m moves
		if _, err := l.Join(t.Context(), node("shop", "a"), m.moved); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		m.reset()
		src.put(vsOf(t, "shop/lone", web, web, ""))
		pass(time.Second)
		if len(m.get().at) != 1 || m.get().at[0] != 25*time.Millisecond || m.get().paths[0] != Slow {
			t.Errorf("a lone edit: %+v, want one move after 25 ms", m.get())
		}
		m.reset()
		for i := range 50 {
			src.put(vsOf(t, "shop/v", "v"+string(rune('a'+i%26))+".org", web, ""), vsOf(t, "shop/lone", web, "db.shop.svc.cluster.local", ""))
			pass(20 * time.Millisecond)
		}
		pass(time.Second)
		if len(m.get().at) != 1 || m.get().at[0] != 49*20*time.Millisecond+100*time.Millisecond {
			t.Errorf("fifty edits: %+v, want one move 100 ms after the last", m.get())
		}
		m.reset()
		for i := range 600 { // edits without a pause: the plan comes after the maximum
			src.put(vsOf(t, "shop/lone", web, []string{web, "db.shop.svc.cluster.local"}[i%2], ""))
			pass(50 * time.Millisecond)
		}
		if len(m.get().at) == 0 || m.get().at[0] > 10*time.Second {
			t.Errorf("edits without end: %v, want a move within 10 s", m.get().at)
		}
	})
}

// Endpoints are planned at once, and those that follow are combined; they do not wait for configuration.
func TestEndpointsGoAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		var m moves
		p, _ := l.Join(t.Context(), node("shop", "a"), m.moved)
		pass(time.Second)
		m.reset()
		src.put(vsOf(t, "shop/lone", web, web, ""))
		synctest.Wait()
		for i := range 9 {
			src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0."+string(rune('1'+i%3))))
			synctest.Wait()
		}
		if len(m.get().at) != 1 || m.get().paths[0] != Fast {
			t.Errorf("nine endpoints at once: told %v, want once by now", m.get().paths)
		}
		pass(12 * time.Millisecond)
		if len(m.get().at) != 2 || m.get().at[1] != 10*time.Millisecond {
			t.Errorf("told at %v, want at once and after 10 ms", m.get().at)
		}
		if got := addresses(t, p.Set(), "outbound|80||"+web); got != "10.1.0.3:8080" {
			t.Errorf("endpoints: %s", got)
		}
		pass(time.Second)
		if len(m.get().at) != 3 || m.get().paths[2] != Slow || p.Set().Revision != src.now.Revision() {
			t.Errorf("told %v at revision %d, want the configuration after the endpoints", m.get().paths, p.Set().Revision)
		}
	})
}

func TestEndpointsDebounced(t *testing.T) {
	inBubble(t, Config{DebounceEndpoints: true}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		var m moves
		_, _ = l.Join(t.Context(), node("shop", "a"), m.moved)
		pass(time.Second)
		m.reset()
		src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.2"))
		pass(time.Second)
		if len(m.get().at) != 1 || m.get().at[0] != 25*time.Millisecond || m.get().paths[0] != Slow {
			t.Errorf("%+v, want one move, after 25 ms", m.get())
		}
	})
}

func TestLoopEnds(t *testing.T) {
	if _, err := NewLoop(Config{}); err == nil {
		t.Error("a loop without a source was made")
	}
	if _, err := NewLoop(Config{Source: newTestSource(), DebounceMax: -1}); err == nil {
		t.Error("a negative PILOT_DEBOUNCE_MAX was taken")
	}
	l, err := NewLoop(Config{Source: newTestSource()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.Run(ctx)
	if _, err := l.Join(t.Context(), node("shop", "a"), nil); !errors.Is(err, errEnded) {
		t.Errorf("Join after the end: %v", err)
	}
}

// The check that runs in production finds a view that missed an edit, and names the differences.
func TestLoopChecksItself(t *testing.T) {
	var log lockedBuffer
	inBubble(t, Config{CheckEvery: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(shop(t)...)
		if _, err := l.Join(t.Context(), node("shop", "a"), nil); err != nil {
			t.Fatal(err)
		}
		src.put(entryOf(t, "shop/x", "x.org", ""))
		pass(2 * time.Minute)
		if got := log.String(); got != "" {
			t.Errorf("a view that is right is reported: %s", got)
		}
		table := affects
		table[model.KindServiceEntry] = []effect{}
		if err := l.call(t.Context(), func() { l.planner.table = &table }); err != nil {
			t.Fatal(err)
		}
		src.put(entryOf(t, "shop/y", "y.org", ""))
		pass(2 * time.Minute)
		if got := log.String(); !strings.Contains(got, "cluster outbound|80||y.org") {
			t.Errorf("a view that missed an edit is not reported: %s", got)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.String()
}
