package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// memory is a Store in memory that refuses all epochs but one.
type memory struct {
	mu       sync.Mutex
	leader   kv.Epoch
	revision int64
	records  map[model.Key][]byte
	batches  []kv.Batch
	fail     error // of the next Commit
}

func (m *memory) LoadHashes(context.Context, int64, func(string) bool) (*kv.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := &kv.State{Store: m.revision, Head: kv.Head{Revision: m.revision, Complete: true}, Complete: m.revision, Said: kv.NewContents(), Contents: kv.NewContents()}
	state.At.Revision = m.revision
	for _, key := range slices.SortedFunc(maps.Keys(m.records), model.Key.Compare) {
		state.Values = append(state.Values, kv.Value{Path: key.Path(), Raw: m.records[key]})
	}
	return state, nil
}

func (m *memory) Commit(_ context.Context, b kv.Batch) (kv.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fail; err != nil {
		m.fail = nil
		return kv.Head{}, err
	}
	if b.Epoch != m.leader {
		return kv.Head{}, kv.ErrDeposed
	}
	if b.After != m.revision {
		return kv.Head{}, kv.ErrStale
	}
	for _, r := range b.Puts {
		raw, err := model.Encode(r)
		if err != nil {
			return kv.Head{}, err
		}
		m.records[r.Meta().Key] = raw
	}
	for _, key := range b.Deletes {
		delete(m.records, key)
	}
	if m.revision++; b.Len() > 0 { // each comparison writes a head
		m.batches = append(m.batches, b)
	}
	return kv.Head{Revision: m.revision, Complete: true, Contents: kv.NewContents()}, nil
}

func (m *memory) Watch(ctx context.Context, _ kv.Position) <-chan kv.Update {
	updates := make(chan kv.Update)
	context.AfterFunc(ctx, func() { close(updates) })
	return updates
}

func (m *memory) Before(context.Context, []string, int64) ([]kv.Value, error) {
	return nil, kv.ErrCompacted
}

// stored is the names of the records, and how many batches made them.
func (m *memory) stored() ([]string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for key := range m.records {
		out = append(out, key.Name)
	}
	slices.Sort(out)
	return out, len(m.batches)
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func run(t *testing.T, l *Loop) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended: %v", err)
		}
	})
}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := kv.Epoch{Key: "leader", Revision: 3}
		m := &memory{leader: epoch, records: map[model.Key][]byte{}}
		l := New(Config{Store: m})
		want := func(batches int, names ...string) {
			t.Helper()
			synctest.Wait()
			if got, n := m.stored(); !slices.Equal(got, names) || n != batches {
				t.Fatalf("stored %q in %d batches, want %q in %d; problems %v", got, n, names, batches, l.Problems())
			}
		}
		run(t, l)
		l.Emit([]object.Event{put(t, svc), put(t, vs("a", "1s")), synced})
		want(0)
		l.Gained(epoch)
		want(1, "a", "web")
		l.Emit([]object.Event{put(t, vs("b", "1s"))})
		want(2, "a", "b", "web")

		m.set(func() { m.fail = errors.New("etcd is away") })
		l.Emit([]object.Event{gone(put(t, vs("b", "1s")))})
		want(2, "a", "b", "web")
		time.Sleep(time.Second) // of the bubble's clock: the pause before it is tried again
		want(3, "a", "web")

		m.set(func() { m.leader.Revision = 9 })
		l.Emit([]object.Event{put(t, vs("c", "1s")), put(t, vs("d", "nonsense"))})
		time.Sleep(time.Minute)
		want(3, "a", "web")
		if p := l.Problems(); len(p) != 1 || p[0].ID.Name != "d" {
			t.Errorf("problems %v", p)
		}
		l.Gained(kv.Epoch{Key: "leader", Revision: 9})
		want(4, "a", "c", "web")
		l.Lost()
		l.Emit([]object.Event{put(t, vs("e", "1s"))})
		time.Sleep(time.Minute)
		want(4, "a", "c", "web")
	})
}

// Problems between objects are found a moment after the change, and name the file.
func TestLoopChecksObjectsAgainstEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Store: &memory{}})
		run(t, l)
		l.Emit([]object.Event{put(t, vs("a", "1s")), synced})
		time.Sleep(time.Second)
		p := l.Problems()
		if len(p) != 1 || p[0].String() != `VirtualService shop/a: spec.http[0].route[0].destination.host: no service has host "web.shop.svc.cluster.local": requests to it fail [IST0101]` || p[0].Location != "a.yaml#1" {
			t.Errorf("problems %v", p)
		}
		l.Emit([]object.Event{put(t, svc)})
		time.Sleep(time.Second)
		if p := l.Problems(); len(p) != 0 {
			t.Errorf("problems %v", p)
		}
	})
}

// A warning about a selector follows its workloads: an added Pod, which is not configuration, ends the warning, and its
// removal restores it. A panic in the check of objects against each other is forgotten once the check succeeds.
func TestLoopFollowsWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Store: &memory{}})
		run(t, l)
		says := func(want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			var got []string
			for _, p := range l.Problems() {
				got = append(got, p.ID.Name+" "+p.Field+" "+string(p.Analyzer))
			}
			if !slices.Equal(got, want) {
				t.Errorf("problems %q, want %q", got, want)
			}
		}
		at := func(name, labels string) object.Event {
			return put(t, strings.Replace(pod(name, labels), "spec: {", "status: {podIP: 10.0.0.7}\nspec: {", 1))
		}
		policy := "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a, namespace: shop}\nspec: {selector: {matchLabels: {app: one}}, rules: [{}]}"
		l.Emit([]object.Event{at("p", "app: two"), put(t, policy), synced})
		says("a spec.selector.matchLabels IST0127")
		l.Emit([]object.Event{put(t, svc), put(t, vs("r", "1s"))})
		says("a spec.selector.matchLabels IST0127")
		before := l.state.inventory.crossCheck.analysis.Examined
		l.Emit([]object.Event{at("q", "app: one")})
		says()
		if n := l.state.inventory.crossCheck.analysis.Examined - before; n != 1 {
			t.Errorf("%d objects were examined because of a Pod that one of them selects", n)
		}
		l.Emit([]object.Event{at("q", "app: one")})
		l.Emit([]object.Event{{Op: object.Delete, ID: at("q", "").ID}})
		says("a spec.selector.matchLabels IST0127")
		l.state.inventory.guard.fault = func(o *object.Object) {
			if o.ID.Name == "" {
				panic("it cannot be read")
			}
		}
		l.Emit([]object.Event{at("q", "app: three")})
		says("  ")
		l.state.inventory.guard.fault = nil
		l.Emit([]object.Event{at("q", "app: four")})
		says("a spec.selector.matchLabels IST0127")
	})
}

// The loop with a real etcd: a mirror reads what it writes, and a deposed leader writes nothing.
func TestLoopOnEtcd(t *testing.T) {
	server := kvtest.Start(t)
	elect := func() kv.Epoch {
		t.Helper()
		if _, err := server.Client().Delete(t.Context(), server.LeaderPath()+"test"); err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Put(t.Context(), server.LeaderPath()+"test", "me")
		if err != nil {
			t.Fatal(err)
		}
		return kv.Epoch{Key: server.LeaderPath() + "test", Revision: resp.Header.Revision}
	}
	l := New(Config{Store: server.Store, Retry: 10 * time.Millisecond})
	run(t, l)
	settle := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			state, err := server.Load(t.Context(), 0)
			if err == nil && len(state.Values) == want && state.Head.Complete {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("stored %+v, error %v; want %d records", state, err, want)
			}
		}
	}
	// A stored record is visible a little before the loop has counted it.
	counted := func(want uint64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); l.Stats().Batches < want && time.Now().Before(deadline); {
			time.Sleep(2 * time.Millisecond)
		}
		if b := l.Stats().Batches; b != want {
			t.Fatalf("%d batches were written, want %d", b, want)
		}
	}
	var many []object.Event
	for i := range 250 { // more than one transaction
		many = append(many, put(t, vs(fmt.Sprintf("v%d", i), "1s")))
	}
	l.Emit(append(many, put(t, svc), synced))
	first := elect()
	l.Gained(first)
	settle(251)
	counted(1) // the next term does not report it again
	second := elect()
	l.Emit([]object.Event{put(t, vs("late", "1s"))})
	l.Gained(second)
	settle(252)
	counted(2)
}
