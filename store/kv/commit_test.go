package kv_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// service is a record of at least some size.
func service(t testing.TB, name string, port uint32, size int) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: name}, 1, &model.ServiceSpec{
		Hosts: []string{name + ".shop.svc.cluster.local"}, Ports: []*model.ServicePort{{Number: port, Name: "http"}},
		Selector: map[string]string{"fill": strings.Repeat("x", size)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func services(t testing.TB, n int, port uint32) []model.Record {
	all := make([]model.Record, n)
	for i := range all {
		all[i] = service(t, fmt.Sprintf("s%04d", i), port, 10)
	}
	return all
}

// epoch makes an election key by hand, as lead does.
func epoch(t *testing.T, s *kv.Store, candidate string) kv.Epoch {
	t.Helper()
	key := s.LeaderPath() + "/" + candidate
	resp, err := s.Client().Put(within(t), key, candidate)
	if err != nil {
		t.Fatal(err)
	}
	return kv.Epoch{Key: key, Revision: resp.Header.Revision}
}

func depose(t *testing.T, s *kv.Store, e kv.Epoch) {
	t.Helper()
	if _, err := s.Client().Delete(within(t), e.Key); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, s *kv.Store, b kv.Batch) int64 {
	t.Helper()
	head, err := s.Commit(within(t), b)
	if err != nil {
		t.Fatal(err)
	}
	return head.Revision
}

func load(t *testing.T, s *kv.Store, revision int64) *kv.State {
	t.Helper()
	state, err := s.Load(within(t), revision)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// next reads an update that is there, or fails.
func next(t *testing.T, updates <-chan kv.Update) kv.Update {
	t.Helper()
	select {
	case u := <-updates:
		return u
	case <-within(t).Done():
		t.Fatal("no update came")
		return kv.Update{}
	}
}

func TestCommitOneTransaction(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	updates := s.Watch(within(t), kv.Position{Revision: e.Revision})
	first := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Seq: 1}, Puts: services(t, 3, 80)})
	second := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Seq: 2}, After: first, Puts: []model.Record{service(t, "s0000", 81, 10)},
		Deletes: []model.Key{service(t, "s0001", 1, 1).Meta().Key}})

	u := next(t, updates)
	if u.Revision != first || u.Head == nil || !u.Head.Complete || u.Head.Seq != 1 || u.Head.Epoch != e.Revision || len(u.Values) != 3 {
		t.Fatalf("first batch: %+v", u)
	}
	u = next(t, updates)
	if u.Revision != second || u.Head == nil || !u.Head.Complete || u.Head.LastComplete != first || len(u.Values) != 2 {
		t.Fatalf("second batch: %+v", u)
	}
	if u.Values[0].Raw == nil || u.Values[1].Raw != nil {
		t.Fatalf("puts stand before deletes: %+v", u.Values)
	}
	state := load(t, s.Store, 0)
	if len(state.Values) != 2 || state.Complete != second || state.Head.Revision != second || state.Head.Time.IsZero() {
		t.Fatalf("loaded %+v", state)
	}
	want, _ := model.Encode(service(t, "s0000", 81, 10))
	if got := state.Values[0]; string(got.Raw) != string(want) || got.Path != "Service///shop/s0000" {
		t.Fatalf("stored %q at %s, want the canonical bytes", got.Raw, got.Path)
	}
	if stat, err := s.Stat(within(t)); err != nil || stat.Head.CompleteRevision() != second {
		t.Fatalf("revision %d, %v, want %d", stat.Head.CompleteRevision(), err, second)
	}
}

// A batch of several transactions: none has more than 100 operations or 1 MiB, and only the last makes the head
// complete.
func TestCommitSeveralTransactions(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	before := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Seq: 1}, Puts: services(t, 250, 80)})
	updates := s.Watch(within(t), kv.Position{Revision: before})
	var deletes []model.Key
	for _, r := range services(t, 250, 80)[100:] {
		deletes = append(deletes, r.Meta().Key)
	}
	var big []model.Record
	for i := range 5 {
		big = append(big, service(t, fmt.Sprintf("big%d", i), 80, 600<<10))
	}
	after := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Seq: 2}, Puts: big, Deletes: deletes})
	seen, deleted := 0, false
	for {
		u := next(t, updates)
		size := 0
		for _, v := range u.Values {
			size += len(v.Path) + len(v.Raw)
			if deleted && v.Raw != nil {
				t.Fatal("a put after a delete")
			}
			deleted = deleted || v.Raw == nil
		}
		if len(u.Values)+1 > kv.MaxTxnOps || size > kv.MaxTxnBytes {
			t.Fatalf("a transaction of %d operations and %d bytes", len(u.Values), size)
		}
		seen += len(u.Values)
		if u.Head != nil && u.Head.LastComplete != before {
			t.Fatalf("head %+v, want last complete %d", *u.Head, before)
		}
		if complete := u.Head != nil && u.Head.Complete; complete != (u.Revision == after) || complete && seen != 155 {
			t.Fatalf("complete: %t at revision %d after %d records; the batch ends at %d", complete, u.Revision, seen, after)
		}
		if u.Revision == after {
			return
		}
	}
}

func TestDeposedLeaderIsFenced(t *testing.T) {
	s := kvtest.Start(t)
	old := epoch(t, s.Store, "a")
	head := commit(t, s.Store, kv.Batch{Epoch: old, Puts: services(t, 1, 80)})
	depose(t, s.Store, old)
	now := epoch(t, s.Store, "b")
	for _, n := range []int{1, 300} {
		if _, err := s.Commit(within(t), kv.Batch{Epoch: old, After: head, Puts: services(t, n, 90)}); !errors.Is(err, kv.ErrDeposed) {
			t.Fatalf("a deposed leader's batch of %d: %v", n, err)
		}
	}
	// The same key again, by a later candidate: the key is not the fence, its creation is.
	again := epoch(t, s.Store, "a")
	if _, err := s.Commit(within(t), kv.Batch{Epoch: old, After: head, Puts: services(t, 1, 90)}); !errors.Is(err, kv.ErrDeposed) {
		t.Fatalf("a deposed leader's batch after its key came back: %v", err)
	}
	if state := load(t, s.Store, 0); state.Head.Revision != head || len(state.Values) != 1 {
		t.Fatalf("the deposed leader wrote: %+v", state.Head)
	}
	commit(t, s.Store, kv.Batch{Epoch: now, After: head, Puts: services(t, 2, 80)})
	_ = again
}

// interrupt deposes a leader between the first and the second transaction of a batch, and returns the error of Commit.
func interrupt(t *testing.T, s *kv.Store, e kv.Epoch, b kv.Batch) error {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	writes := s.Client().Watch(ctx, s.Prefix()+"head")
	gate := make(chan struct{})
	deposed := make(chan struct{})
	go func() {
		defer close(deposed)
		<-writes
		depose(t, s, e)
		close(gate)
	}()
	b.Epoch = e
	_, err := kv.CommitGated(s, within(t), b, gate)
	<-deposed
	return err
}

// A leader that is deposed in the middle of a batch leaves an incomplete head: readers still get the last complete
// state, only a full comparison may follow, and it completes the batch.
func TestInterruptedBatchIsRepaired(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	whole := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 10, 80)})
	if err := interrupt(t, s.Store, e, kv.Batch{After: whole, Puts: services(t, 300, 90)}); !errors.Is(err, kv.ErrDeposed) {
		t.Fatalf("interrupted batch: %v", err)
	}
	state := load(t, s.Store, 0)
	if state.Head.Complete || state.Head.LastComplete != whole || state.Complete != whole || len(state.Values) != 10 {
		t.Fatalf("loaded %d records at %d, head %+v; want the 10 of revision %d", len(state.Values), state.Complete, state.Head, whole)
	}
	if stat, _ := s.Stat(within(t)); stat.Head.CompleteRevision() != whole {
		t.Fatalf("revision %d, want %d", stat.Head.CompleteRevision(), whole)
	}
	now := epoch(t, s.Store, "b")
	if _, err := s.Commit(within(t), kv.Batch{Epoch: now, Puts: services(t, 1, 80)}); !errors.Is(err, kv.ErrStale) {
		t.Fatalf("a batch that was not compared with the incomplete head: %v", err)
	}
	// The full comparison reads the present records, not the last complete state.
	is := load(t, s.Store, state.Store)
	if len(is.Values) != 99 || is.Complete != 0 {
		t.Fatalf("what is: %d records, complete %d", len(is.Values), is.Complete)
	}
	repaired := commit(t, s.Store, kv.Batch{Epoch: now, After: state.Head.Revision, Puts: services(t, 300, 90)})
	if state = load(t, s.Store, 0); state.Complete != repaired || !state.Head.Complete || len(state.Values) != 300 {
		t.Fatalf("after the repair: %+v with %d records", state.Head, len(state.Values))
	}
}

// Another writer's head between two transactions of a batch: the rest is not written.
func TestHeadMovedUnderBatch(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	gate := make(chan struct{})
	writes := s.Client().Watch(within(t), s.Prefix()+"head")
	go func() {
		defer close(gate)
		<-writes
		_, _ = s.Client().Delete(within(t), s.Prefix()+"head")
	}()
	if _, err := kv.CommitGated(s.Store, within(t), kv.Batch{Epoch: e, Puts: services(t, 150, 80)}, gate); !errors.Is(err, kv.ErrStale) {
		t.Fatal(err)
	}
	if state := load(t, s.Store, 0); state.Complete != 0 || len(state.Values) != 99 {
		t.Fatalf("complete %d, %d records", state.Complete, len(state.Values))
	}
}

// If etcd has compacted the last complete revision, the present records are returned, and marked as not complete.
func TestLoadIncompleteAfterCompaction(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	whole := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 10, 80)})
	_ = interrupt(t, s.Store, e, kv.Batch{After: whole, Puts: services(t, 300, 90)})
	stat, err := s.Stat(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(within(t), stat.Revision); err != nil {
		t.Fatal(err)
	}
	if state := load(t, s.Store, 0); state.Complete != 0 || len(state.Values) != 99 {
		t.Fatalf("complete %d with %d records", state.Complete, len(state.Values))
	}
	if _, err := s.Load(within(t), whole); !errors.Is(err, kv.ErrCompacted) {
		t.Fatalf("a compacted revision: %v", err)
	}
}

func TestEmptyBatchCompletesOnlyWhatIsNot(t *testing.T) {
	s := kvtest.Start(t)
	if state := load(t, s.Store, 0); state.Complete != 0 || state.Head.Revision != 0 {
		t.Fatalf("an empty store: %+v", state)
	}
	e := epoch(t, s.Store, "a")
	first := commit(t, s.Store, kv.Batch{Epoch: e})
	if state := load(t, s.Store, 0); state.Complete != first || first == 0 {
		t.Fatalf("an empty batch in an empty store: %+v", state)
	}
	if again := commit(t, s.Store, kv.Batch{Epoch: e}); again != first {
		t.Fatalf("an empty batch wrote revision %d", again)
	}
	if stat, _ := s.Stat(within(t)); stat.Revision != first {
		t.Fatalf("something was written: %+v", stat)
	}
	if _, err := s.Commit(within(t), kv.Batch{Epoch: e, After: first - 1}); !errors.Is(err, kv.ErrStale) {
		t.Fatalf("a batch that follows another head: %v", err)
	}
}

// Records are encoded transaction by transaction: while a batch of 40 MB is written no more than a few are in memory.
func TestBatchIsEncodedInParts(t *testing.T) {
	s := kvtest.Start(t)
	fill := strings.Repeat("x", 40<<10)
	puts := make([]model.Record, 1000) // all with the same text
	for i := range puts {
		var err error
		puts[i], err = model.New(model.Key{Kind: model.KindService, Namespace: "shop", Name: fmt.Sprint("s", i)}, 1, &model.ServiceSpec{Selector: map[string]string{"fill": fill}})
		if err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, transactions := heap(), uint64(0), 1
	head, err := kv.CommitBetween(s.Store, within(t), kv.Batch{Epoch: epoch(t, s.Store, "a"), Puts: puts}, func() {
		if transactions++; transactions%8 == 2 {
			most = max(most, heap())
		}
	})
	if err != nil || !head.Complete || transactions < 40 {
		t.Fatalf("%+v after %d transactions: %v", head, transactions, err)
	}
	if more := int64(most) - int64(before); more > 10<<20 {
		t.Errorf("a batch of %d transactions had %d MB in memory", transactions, more>>20)
	}
}

// One record that is too large for etcd is refused by name; all others are stored.
func TestTooLargeRecordIsRefusedAlone(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	commit(t, s.Store, kv.Batch{Epoch: e, Puts: []model.Record{service(t, "huge", 80, 10)}})
	head, err := s.Commit(within(t), kv.Batch{Epoch: e, Puts: []model.Record{service(t, "a", 80, 10), service(t, "huge", 81, 1<<20), service(t, "full", 80, 1<<20-2000)}})
	var refused *kv.TooLargeError
	if !errors.As(err, &refused) || len(refused.Records) != 1 || refused.Records[0].Name != "huge" || !strings.Contains(err.Error(), "Service shop/huge has 1048") {
		t.Fatalf("got %v", err)
	}
	state := load(t, s.Store, 0)
	if state.Complete != head.Revision || len(state.Values) != 3 {
		t.Fatalf("complete %d (committed %d), %d records", state.Complete, head.Revision, len(state.Values))
	}
	if r, err := state.Values[2].Record(); err != nil || r.(*model.Service).Spec.Ports[0].Number != 80 {
		t.Fatalf("the old version of the large record: %v, %v", r, err)
	}
}

func TestBadBatches(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	one := service(t, "a", 80, 10)
	for want, b := range map[string]kv.Batch{
		"without an epoch":              {Puts: []model.Record{one}},
		"names Service shop/a twice":    {Epoch: e, Puts: []model.Record{one}, Deletes: []model.Key{one.Meta().Key}},
		"is no longer this leader's":    {Epoch: kv.Epoch{Key: e.Key, Revision: e.Revision + 1}, Puts: []model.Record{one}},
		"the batch follows 1":           {Epoch: e, After: 1, Puts: []model.Record{one}},
		"batch of 1 at epoch " + "9999": {Epoch: kv.Epoch{Key: "/elsewhere", Revision: 9999}, Puts: []model.Record{one}},
	} {
		if _, err := s.Commit(within(t), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if state := load(t, s.Store, 0); len(state.Values) != 0 {
		t.Fatalf("a bad batch wrote %d records", len(state.Values))
	}
}

// A head that another writer damaged does not block: it counts as incomplete, and a full comparison replaces it. A head
// of schema 99 is reported as that of a newer build.
func TestSpoiledHead(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 1, 80)})
	for _, spoiled := range []string{"spoiled", "", "\x08\x63"} {
		if _, err := s.Client().Put(within(t), s.Prefix()+"head", spoiled); err != nil {
			t.Fatal(err)
		}
		state := load(t, s.Store, 0)
		if state.Complete != 0 || state.Head.Err == nil || len(state.Values) != 1 || errors.Is(state.Head.Err, model.ErrNewer) != (spoiled == "\x08\x63") {
			t.Fatalf("head %q: %+v", spoiled, state)
		}
		if _, err := s.Commit(within(t), kv.Batch{Epoch: e}); !errors.Is(err, kv.ErrStale) {
			t.Fatalf("head %q: %v", spoiled, err)
		}
		commit(t, s.Store, kv.Batch{Epoch: e, After: state.Head.Revision})
	}
}
