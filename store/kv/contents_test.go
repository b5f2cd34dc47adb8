package kv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// Contents updated change by change equal those computed from scratch. Every difference in a path, a value or a number
// is visible in its kind, and in no other.
func TestContentsFollowChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	records := map[string][]byte{}
	list := func() (values []kv.Value) {
		for path, raw := range records {
			values = append(values, kv.Value{Path: path, Raw: raw})
		}
		return values
	}
	followed := kv.NewContents()
	for range 3000 {
		path := fmt.Sprintf("%s/shop/r%d", []string{"Service", "Endpoints", "Novel", "no path"}[r.IntN(4)], r.IntN(40))
		now := kv.Value{Path: path}
		if r.IntN(3) > 0 {
			now.Raw = fmt.Appendf([]byte{}, "%d", r.IntN(5))
		}
		followed.Replace(path, kv.Value{Path: path, Raw: records[path]}.Hash(), now.Hash())
		if records[path] = now.Raw; now.Raw == nil {
			delete(records, path)
		}
		if differ := followed.Differ(kv.ContentsOf(list())); len(differ) > 0 {
			t.Fatalf("%v differ", differ)
		}
	}
	was := followed.Clone()
	var values []kv.Value
	var one int
	var another kv.Value
	for what, change := range map[string]func(){
		"a record that is gone":         func() { values = slices.Delete(values, one, one+1) },
		"a value":                       func() { values[one].Raw = []byte("other") },
		"a value that is empty":         func() { values[one].Raw = []byte{} },
		"a record at another path":      func() { values[one].Path += "x" },
		"one more":                      func() { values = append(values, kv.Value{Path: "Service///shop/more", Raw: []byte("1")}) },
		"a byte that moved to the path": func() { values[one] = kv.Value{Path: another.Path + string(another.Raw[:1]), Raw: another.Raw[1:]} },
	} {
		values = list()
		one = slices.IndexFunc(values, func(v kv.Value) bool { return strings.HasPrefix(v.Path, "Service/") })
		another = values[one]
		if change(); !slices.Equal(was.Differ(kv.ContentsOf(values)), []string{"Service"}) {
			t.Errorf("%s: differ %v", what, was.Differ(kv.ContentsOf(values)))
		}
	}
	if n := testing.AllocsPerRun(100, func() { followed.Replace("Service///shop/r1", model.Hash{1}, model.Hash{2}) }); n != 0 {
		t.Errorf("a change allocates %v times", n)
	}
}

// stored computes the contents of the stored records, without the head.
func stored(t *testing.T, s *kv.Store) kv.Contents {
	t.Helper()
	stat, err := s.Stat(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return load(t, s, stat.Revision).Contents
}

// Every head describes the records stored with it: after batches of one and several transactions, with records that are
// refused, restored and deleted, and of kinds that the leader does not know.
func TestHeadSaysWhatIsStored(t *testing.T) {
	s := kvtest.Start(t)
	s.Put("records/Novel///shop/x", "of a newer build")
	term := s.Term(epoch(t, s.Store, "a"))
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 30 {
		var b kv.Batch
		for _, one := range services(t, 1+r.IntN(260), uint32(80+i)) {
			switch r.IntN(4) {
			case 0:
				b.Deletes = append(b.Deletes, one.Meta().Key)
			case 1:
				b.Puts = append(b.Puts, one)
			}
		}
		head := term.Commit(b)
		if differ := head.Contents.Differ(stored(t, s.Store)); len(differ) > 0 || !head.Contents.Known() {
			t.Fatalf("after batch %d: %v differ", i, differ)
		}
		stat, err := s.Stat(within(t))
		if err != nil || len(stat.Head.Contents.Differ(head.Contents)) > 0 || !stat.Head.Contents.Known() || stat.Head.Revision != head.Revision {
			t.Fatalf("the stored head is not the one that was returned: %+v, %v", stat.Head, err)
		}
	}
	sameBefore(t, s.Store)
	e := epoch(t, s.Store, "b")
	was := stored(t, s.Store)
	hashes := map[model.Key]model.Hash{}
	for _, v := range load(t, s.Store, 0).Values {
		if key, err := v.Key(); err == nil {
			hashes[key] = v.Hash()
		}
	}
	head, err := s.Commit(within(t), kv.Batch{Epoch: e, Puts: []model.Record{service(t, "huge", 1, 1<<20), service(t, "s0000", 1, 1)}, Stored: was, Was: hashes})
	if err == nil || len(head.Contents.Differ(stored(t, s.Store))) > 0 {
		t.Fatalf("a refused record counts: %v, %v", head.Contents.Differ(stored(t, s.Store)), err)
	}
	again, err := s.Commit(within(t), kv.Batch{Epoch: e, After: head.Revision, Stored: head.Contents})
	if err != nil || again.Revision != head.Revision {
		t.Fatalf("an empty batch that says what the head does: %d, %v", again.Revision, err)
	}
	s.Delete(s.RecordKey(service(t, "s0000", 1, 1).Meta().Key), "")
	s.Put("records/Novel///shop/y", "foreign")
	before, err := s.Before(within(t), []string{"Service///shop/s0000"}, load(t, s.Store, 0).Store-1)
	if err != nil || len(before) != 1 || before[0].Raw == nil {
		t.Fatalf("as it was before: %+v, %v", before, err)
	}
	if err := s.Compact(within(t), load(t, s.Store, 0).Store); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Before(within(t), []string{"Service///shop/s0000"}, head.Revision); !errors.Is(err, kv.ErrCompacted) {
		t.Fatalf("what etcd has forgotten: %v", err)
	}
	last, err := s.Commit(within(t), kv.Batch{Epoch: e, After: head.Revision, Stored: head.Contents, Restore: append(before, kv.Value{Path: "Novel///shop/y"})})
	if err != nil || len(last.Contents.Differ(head.Contents)) > 0 || len(last.Contents.Differ(stored(t, s.Store))) > 0 {
		t.Fatalf("what is put back: %v, %v", last.Contents.Differ(stored(t, s.Store)), err)
	}
}

// sameBefore reads all records as they were before the next revision, which is as they are.
func sameBefore(t *testing.T, s *kv.Store) {
	t.Helper()
	commit(t, s, kv.Batch{Epoch: epoch(t, s, "before"), Puts: services(t, 230, 77)})
	state := load(t, s, 0)
	var paths []string
	for _, v := range state.Values {
		paths = append(paths, v.Path)
	}
	values, err := s.Before(within(t), append(paths, "Service///shop/none"), state.Store+1)
	if n := len(state.Values); err != nil || len(values) != n+1 || values[n].Raw != nil || len(kv.ContentsOf(values[:n]).Differ(state.Contents)) > 0 {
		t.Fatalf("%d of %d records, %v", len(values), n, err)
	}
}

// A revision that changed records and did not write the head is not a leader's.
func TestEveryTransactionWritesTheHead(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	updates := s.Watch(within(t), kv.Position{Revision: e.Revision})
	last := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 350, 80)})
	for n := 1; ; n++ {
		u := next(t, updates)
		if u.Head == nil || u.Head.Epoch != e.Revision || u.Head.LastComplete != 0 {
			t.Fatalf("transaction %d wrote %d records and the head %+v", n, len(u.Values), u.Head)
		}
		if u.Revision == last {
			if n != 4 {
				t.Fatalf("%d transactions", n)
			}
			return
		}
	}
}

// Records that another writer changed are listed as at the head's revision, while etcd has it; otherwise as they are,
// with a visible difference.
func TestLoadOfChangedRecords(t *testing.T) {
	s := kvtest.Start(t)
	head := s.Term(epoch(t, s.Store, "a")).Commit(kv.Batch{Puts: services(t, 5, 80)})
	s.Delete(s.Prefix()+"records/Service/", s.Prefix()+"records/Service0")
	state := load(t, s.Store, 0)
	if state.At.Revision != head.Revision || len(state.Values) != 5 || state.Complete != head.Revision || state.Store <= head.Revision {
		t.Fatalf("listed %d records at %+v of %d", len(state.Values), state.At, state.Store)
	}
	if err := s.Compact(within(t), state.Store); err != nil {
		t.Fatal(err)
	}
	state = load(t, s.Store, 0)
	if state.At.Revision != state.Store || len(state.Values) != 0 || !slices.Equal(state.Contents.Differ(state.Said), []string{"Service"}) {
		t.Fatalf("after compaction: %d records at %+v, %v differ", len(state.Values), state.At, state.Contents.Differ(state.Said))
	}
	if was := state.Said.Kind("Service"); was.Count != 5 {
		t.Fatalf("the head says %+v", was)
	}
}

// Contents of an unknown algorithm are not compared.
func TestUnknownAlgorithm(t *testing.T) {
	s := kvtest.Start(t)
	commit(t, s.Store, kv.Batch{Epoch: epoch(t, s.Store, "a"), Puts: services(t, 1, 80)})
	for name, contents := range map[string]*model.ContentsValue{
		"a newer algorithm": {Algorithm: 2, Kinds: []*model.KindContents{{Kind: []byte("Service"), Count: 7, Sum: make([]byte, 16)}}},
		"no sum":            {Algorithm: 1, Kinds: []*model.KindContents{{Kind: []byte("Service"), Count: 7}}},
	} {
		s.WriteHead(contents)
		state := load(t, s.Store, 0)
		if state.Said.Known() || state.Said.Algorithm() == 0 || state.Complete == 0 || len(state.Contents.Differ(state.Said)) != 0 {
			t.Errorf("%s: %+v", name, state)
		}
	}
	// More kinds than any build has do not fit: the head then contains no contents.
	many := kv.NewContents()
	for i := range 200 {
		many.Replace(fmt.Sprintf("%064d/x/y", i), model.Hash{}, model.Hash{1})
	}
	head, err := s.Commit(within(t), kv.Batch{Epoch: epoch(t, s.Store, "b"), Puts: services(t, 2, 81), Stored: many})
	if err != nil || head.Contents.Known() || load(t, s.Store, 0).Said.Algorithm() != 0 {
		t.Fatalf("%+v, %v", head, err)
	}
}
