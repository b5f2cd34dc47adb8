package kv_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

func stat(t *testing.T, s *kv.Store) kv.Stat {
	t.Helper()
	got, err := s.Stat(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func put(t *testing.T, s *kv.Store, key, value string) int64 {
	t.Helper()
	resp, err := s.Client().Put(within(t), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// A watch groups changes by revision, resumes at a given position, and reports its progress while others write.
func TestWatchResumes(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	var at []int64
	for port := range uint32(4) {
		at = append(at, commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 3, 80+port)}))
	}
	foreign := put(t, s.Store, s.Prefix()+"members/x", "1")
	put(t, s.Store, "/elsewhere", "1")
	for from := range at {
		updates := s.Watch(within(t), kv.Position{Revision: at[from]})
		for _, want := range at[from+1:] {
			if u := next(t, updates); u.Revision != want || len(u.Values) != 3 || u.Head == nil {
				t.Fatalf("from %d: got %+v, want revision %d", at[from], u, want)
			}
		}
		if u := next(t, updates); u.Revision != foreign || u.Head != nil || u.Values != nil {
			t.Fatalf("from %d: got %+v, want no more than revision %d", at[from], u, foreign)
		}
	}
}

// The connection breaks, the server comes back: nothing is missing and nothing comes twice.
func TestWatchSurvivesRestart(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	replica := s.Connect()
	first := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 3, 80)})
	updates := replica.Watch(within(t), kv.Position{Cluster: stat(t, replica).Cluster})
	got := []int64{next(t, updates).Revision}
	s.Restart(s.Dir())
	second := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 3, 81)})
	got = append(got, next(t, updates).Revision)
	if !slices.Equal(got, []int64{first, second}) {
		t.Fatalf("got revisions %v, want %d and %d", got, first, second)
	}
}

func TestWatchCompacted(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	first := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 3, 80)})
	second := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 3, 81)})
	if err := s.Compact(within(t), second); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(within(t), second); err != nil {
		t.Fatalf("again: %v", err)
	}
	if u := next(t, s.Watch(within(t), kv.Position{Revision: first - 1})); !errors.Is(u.Err, kv.ErrCompacted) {
		t.Fatalf("got %+v", u)
	}
}

// A watch of another store ends immediately, and so does the check.
func TestWatchOfAnotherStore(t *testing.T) {
	s := kvtest.Start(t)
	now := stat(t, s.Store)
	for want, from := range map[error]kv.Position{
		kv.ErrRegressed:      {Cluster: now.Cluster, Revision: now.Revision + 1},
		kv.ErrClusterChanged: {Cluster: now.Cluster + 1, Revision: now.Revision},
	} {
		if u := next(t, s.Watch(within(t), from)); !errors.Is(u.Err, want) {
			t.Errorf("watch from %+v: got %+v, want %v", from, u, want)
		}
		if err := from.Check(now); !errors.Is(err, want) {
			t.Errorf("check of %+v: %v", from, err)
		}
	}
	if err := (kv.Position{}).Check(now); err != nil {
		t.Errorf("a store that was never read: %v", err)
	}
}

func TestWatchEndsWithContext(t *testing.T) {
	s := kvtest.Start(t)
	ctx, cancel := context.WithCancel(within(t))
	updates := s.Watch(ctx, kv.Position{})
	cancel()
	for range updates { // until it is closed
	}
}

// Pages are of one revision: records written while the list is read are not in it.
func TestLoadIsPinned(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	first := commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 700, 80)})
	var deletes []model.Key
	for _, r := range services(t, 700, 80)[:600] {
		deletes = append(deletes, r.Meta().Key)
	}
	second := commit(t, s.Store, kv.Batch{Epoch: e, Puts: []model.Record{service(t, "zzz", 80, 1)}, Deletes: deletes})
	state := load(t, s.Store, first)
	if len(state.Values) != 700 || state.Complete != first || state.At.Revision != first || state.Head.Revision != second {
		t.Fatalf("%d records at %+v, complete %d, head %+v", len(state.Values), state.At, state.Complete, state.Head)
	}
	if !slices.IsSortedFunc(state.Values, func(a, b kv.Value) int { return strings.Compare(a.Path, b.Path) }) {
		t.Fatal("not in order")
	}
	if now := load(t, s.Store, 0); len(now.Values) != 101 || now.Complete != second {
		t.Fatalf("%d records, complete %d", len(now.Values), now.Complete)
	}
}

// Values that do not decode, and keys that are not records of this build, are listed with their error.
func TestLoadUndecodable(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	commit(t, s.Store, kv.Batch{Epoch: e, Puts: services(t, 1, 80)})
	for path, value := range map[string]string{"Service///shop/bad": "\xff\xff", "Service///shop/empty": "", "Novel///shop/a": "x", "nothing": "x"} {
		put(t, s.Store, s.Prefix()+"records/"+path, value)
	}
	wrong := map[string]string{}
	for _, v := range load(t, s.Store, 0).Values {
		if _, err := v.Record(); err != nil {
			wrong[v.Path] = err.Error()
		}
	}
	if len(wrong) != 4 || wrong["Novel///shop/a"] == "" || wrong["Service///shop/bad"] == "" {
		t.Fatalf("got %v", wrong)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, cfg := range []kv.Config{{Mesh: "m"}, {Mesh: "", Endpoints: []string{"x:1"}}, {Mesh: "a/b", Endpoints: []string{"x:1"}}} {
		if s, err := kv.Open(cfg); err == nil {
			_ = s.Close()
			t.Errorf("%+v was taken", cfg)
		}
	}
}
