package mirror_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// An empty store is not an empty mesh: nothing is published before a leader has written a complete state.
func TestColdStartOnEmptyStore(t *testing.T) {
	s, e := etcd(t)
	m := start(t, s.Connect())
	receive(t, "the list", m.relisted)
	s.Put("members/x", "the watch brings this, and nothing is published")
	s.Put("records/Service///shop/a", "nor by this")
	if m.Current() != nil {
		t.Fatalf("published %v", dump(t, m.Current()))
	}
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "no leader has written yet") && !strings.Contains(err.Error(), "nothing was read yet") {
		t.Fatalf("ready: %v", err)
	}
	s.Delete(s.Prefix()+"records/Service///shop/a", "")
	revision := s.MustCommit(kv.Batch{Epoch: e})
	if c := m.reach(revision); len(c.Edits) != 0 || c.New.Revision() != revision {
		t.Fatalf("published %+v", c)
	}
	if err := m.Ready(); err != nil {
		t.Fatal(err)
	}
}

// A part of a batch is never visible: neither to a watching mirror, nor to one that starts meanwhile. The next leader
// completes the batch.
func TestInterruptedBatchIsNotSeen(t *testing.T) {
	s, e := etcd(t)
	whole := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 10, 80)})
	watching := start(t, s.Connect())
	before := watching.reach(whole).New
	half := s.Interrupted(e, services(t, 5, 50, 81), keys(services(t, 0, 3, 80)...))
	s.Depose(e)
	started := start(t, s.Connect())
	wantSame(t, "a mirror that starts in the middle of a batch", started.reach(whole).New, before)

	next := s.Elect("b")
	fresh := services(t, 3, 120, 82) // two transactions
	repaired := s.MustCommit(kv.Batch{Epoch: next, After: half, Puts: fresh})
	a, b := watching.reach(repaired), started.reach(repaired)
	for _, m := range []*running{watching, started} {
		for len(m.changes) > 0 {
			if c := <-m.changes; c.New.Revision() != whole && c.New.Revision() != repaired {
				t.Errorf("published the middle of a batch: revision %d, %d records", c.New.Revision(), c.New.Len(model.KindService))
			}
		}
	}
	wantSame(t, "after the repair", a.New, b.New)
	if a.New.Len(model.KindService) != 117 || len(a.Edits) != 120 {
		t.Fatalf("%d services after %d edits", a.New.Len(model.KindService), len(a.Edits))
	}
}

// The last complete revision is compacted: a mirror that starts cannot list it, waits, and reports the reason.
func TestStartInTheMiddleAfterCompaction(t *testing.T) {
	s, e := etcd(t)
	s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 10, 80)})
	half := s.Interrupted(e, services(t, 5, 50, 81), nil)
	if err := s.Compact(within(t), half); err != nil {
		t.Fatal(err)
	}
	m := start(t, s.Connect())
	receive(t, "the list", m.relisted)
	if err := m.Ready(); m.Current() != nil || err == nil || !strings.Contains(err.Error(), "is incomplete") {
		t.Fatalf("ready: %v", err)
	}
	if c := m.reach(s.MustCommit(kv.Batch{Epoch: e, After: half})); c.New.Len(model.KindService) != 50 {
		t.Fatalf("%d services", c.New.Len(model.KindService))
	}
}

// A mirror fed by the watch, one that listed at the end, and one that was paused over a compaction hold the same, byte
// for byte, whatever was edited.
func TestWatchedEqualsListed(t *testing.T) {
	s, e := etcd(t)
	watched, paused := start(t, s.Connect()), start(t, s.Connect())
	r := rand.New(rand.NewPCG(3, 1))
	var revision int64
	edit := func(n int) {
		for range n {
			b := kv.Batch{Epoch: e}
			in := map[model.Key]bool{}
			for range 1 + r.IntN(20) {
				one := randomRecord(t, r)
				if in[one.Meta().Key] {
					continue
				}
				in[one.Meta().Key] = true
				if r.IntN(3) == 0 {
					b.Deletes = append(b.Deletes, one.Meta().Key)
				} else {
					b.Puts = append(b.Puts, one)
				}
			}
			revision = s.MustCommit(b)
		}
	}
	edit(60)
	paused.reach(revision)
	paused.pause()
	edit(60)
	if err := s.Compact(within(t), revision); err != nil {
		t.Fatal(err)
	}
	paused.resume()
	fresh := start(t, s.Connect()).reach(revision).New
	wantSame(t, "watched and listed", watched.reach(revision).New, fresh)
	wantSame(t, "paused and listed", paused.reach(revision).New, fresh)
	for c := range drain(watched.changes) {
		same := func(a, b mirror.Edit) bool { return a.Old == b.Old && a.New == b.New }
		if !slices.EqualFunc(c.Edits, mirror.Diff(c.Old, c.New).Edits, same) {
			t.Fatalf("the change to revision %d is not what differs", c.New.Revision())
		}
	}
}

func drain[T any](from chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for len(from) > 0 {
			if !yield(<-from) {
				return
			}
		}
	}
}

// Etcd compacts revisions that a paused mirror has not read. The mirror then lists again and publishes exactly the
// differences. Unchanged records keep their pointers, and no existing record is removed.
func TestCompactionPastPausedMirror(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: append(services(t, 0, 20, 80), endpoints(t, "s000", "10.0.0.1", "10.0.0.2"))})
	m := start(t, s.Connect())
	before := m.reach(first).New
	m.pause()
	receive(t, "the first list", m.relisted)
	s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 3, 4, 81), Deletes: keys(service(t, "s004", 0))})
	last := s.MustCommit(kv.Batch{Epoch: e, Puts: append(services(t, 20, 21, 80), endpoints(t, "s000", "10.0.0.1", "10.0.0.3"))})
	if err := s.Compact(within(t), last); err != nil {
		t.Fatal(err)
	}
	m.resume()
	receive(t, "the second list", m.relisted)
	change := m.reach(last)
	edited := keys(endpoints(t, "s000"), service(t, "s003", 0), service(t, "s004", 0), service(t, "s020", 0))
	var got []model.Key
	for _, edit := range change.Edits {
		got = append(got, edit.Key())
	}
	slices.SortFunc(edited, model.Key.Compare)
	if !slices.Equal(got, edited) || change.Old != before {
		t.Fatalf("edits of %v, want %v", got, edited)
	}
	for _, kind := range model.Kinds() {
		for r := range before.All(kind) {
			if key := r.Meta().Key; !slices.Contains(edited, key) && pointer(t, change.New, key) != r {
				t.Errorf("%v is another pointer", key)
			}
		}
	}
	key := endpoints(t, "s000").Meta().Key
	if pointer(t, before, key).(*model.Endpoints).Spec.Endpoints[0] != pointer(t, change.New, key).(*model.Endpoints).Spec.Endpoints[0] {
		t.Error("an endpoint that did not change is another pointer")
	}
	if change.Committed.IsZero() == false {
		t.Error("a list does not know when its batches were written")
	}
}

// The same content written again is no edit and the same pointer.
func TestSameContentSamePointer(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: append(services(t, 0, 2, 80), endpoints(t, "s000", "10.0.0.1"))})
	m := start(t, s.Connect())
	before := m.reach(first).New
	again := s.MustCommit(kv.Batch{Epoch: e, Puts: append(services(t, 0, 2, 80), endpoints(t, "s000", "10.0.0.1"))})
	change := m.reach(again)
	if len(change.Edits) != 0 || change.New.Revision() != again || change.Committed.IsZero() {
		t.Fatalf("%+v", change)
	}
	for _, kind := range model.Kinds() {
		for r := range before.All(kind) {
			if pointer(t, change.New, r.Meta().Key) != r {
				t.Errorf("%v is another pointer", r.Meta().Key)
			}
		}
	}
}

// A value that does not decode: the last good version stays, all other changes are applied, and the status names the
// value.
func TestUndecodableKeepsLastGood(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 80)})
	m := start(t, s.Connect())
	good := pointer(t, m.reach(first).New, service(t, "s001", 0).Meta().Key)
	s.Put("records/Service///shop/s001", "") // not the same as deleted
	second := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 81)})
	change := m.reach(second)
	problems := receive(t, "the problem", m.problems)
	if len(change.Edits) != 1 || pointer(t, change.New, good.Meta().Key) != good {
		t.Fatalf("edits %v", change.Edits)
	}
	if len(problems) != 1 || !problems[0].Kept || !strings.Contains(problems[0].String(), "Service///shop/s001") || m.Ready() != nil {
		t.Fatalf("problems %v, ready: %v", problems, m.Ready())
	}
	m.pause() // the same when it is read from a list
	if err := s.Compact(within(t), s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 82)})); err != nil {
		t.Fatal(err)
	}
	m.resume()
	third := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 83)})
	if change = m.reach(third); pointer(t, change.New, good.Meta().Key) != good || len(m.Status().Problems) != 1 {
		t.Fatalf("problems %v", m.Status().Problems)
	}
	last := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 1, 2, 84)})
	if change = m.reach(last); len(change.Edits) != 1 || len(receive(t, "the end of the problem", m.problems)) != 0 {
		t.Fatalf("a good version came: %v", change.Edits)
	}
}

// Without a version that decodes, a mirror that starts publishes nothing, and reports the reason. One that runs
// publishes the rest, and reports why it is not ready.
func TestUndecodableWithoutLastGood(t *testing.T) {
	for _, path := range []string{"Service///shop/bad", "Secret///shop/bad"} {
		t.Run(path, func(t *testing.T) {
			s, e := etcd(t)
			first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 80)})
			runs := start(t, s.Connect())
			runs.reach(first)
			s.Put("records/"+path, "\xff\xff")
			second := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 81)})
			if c := runs.reach(second); len(c.Edits) != 1 || c.New.Len(model.KindService) != 3 {
				t.Fatalf("edits %v", c.Edits)
			}
			starts := start(t, s.Connect())
			for _, m := range []*running{runs, starts} {
				receive(t, "the problem", m.problems)
				if err := m.Ready(); err == nil || !strings.Contains(err.Error(), path) {
					t.Fatalf("ready: %v", err)
				}
			}
			if starts.Current() != nil {
				t.Fatal("published without a record")
			}
			s.Delete(s.Prefix()+"records/"+path, "")
			third := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 82)})
			wantSame(t, "after the repair", runs.reach(third).New, starts.reach(third).New)
			for _, m := range []*running{runs, starts} {
				receive(t, "the end of the problem", m.problems)
				if err := m.Ready(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Another writer deletes everything. With the head: the state is not complete, and no proxy loses anything. Without the
// head: a leader that makes an edit does not notice, and its head describes the missing records.
func TestDeletedPrefixBlanksNothing(t *testing.T) {
	t.Run("all but the head", func(t *testing.T) {
		s, e := etcd(t)
		leader := s.Term(e)
		first := leader.Commit(kv.Batch{Puts: append(services(t, 0, 30, 80), endpoints(t, "s000", "10.0.0.1"))})
		m := start(t, s.Connect())
		before := m.reach(first.Revision).New
		deletePrefix(s, "records/")
		second := leader.Commit(kv.Batch{Puts: services(t, 0, 1, 81)})
		if c := m.reach(second.Revision); len(c.Edits) != 0 || c.Old != before {
			t.Fatalf("edits %v", c.Edits)
		}
		m.holds("Endpoints", "Service")
		mended := leader.Commit(kv.Batch{Puts: append(services(t, 1, 30, 80), endpoints(t, "s000", "10.0.0.1"))})
		if c := m.reach(mended.Revision); len(c.Edits) != 1 || c.New.Len(model.KindService) != 30 {
			t.Fatalf("edits %v", c.Edits)
		}
	})
	t.Run("the head too", deletedWithHead)
}

func deletedWithHead(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 30, 80)})
	m := start(t, s.Connect())
	before := m.reach(first).New
	s.Delete(s.Prefix()+"head", s.Prefix()+"records0")
	e = s.Elect("b")
	if _, err := s.Store.Commit(within(t), kv.Batch{Epoch: e, After: first, Puts: services(t, 0, 1, 81)}); !errors.Is(err, kv.ErrStale) {
		t.Fatalf("the leader did not notice: %v", err)
	}
	repaired := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 30, 80)})
	if c := m.reach(repaired); c.Old != before || len(c.Edits) != 0 {
		t.Fatalf("edits %v", c.Edits)
	}
	m.pause() // the subscriber is called before the hook
	if n := len(m.changes); n != 2 {
		t.Fatalf("%d publications, want 2", n)
	}
}
