package kv_test

import (
	"errors"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// A store is accepted if it is the one that was read, or its continuation.
func TestJudge(t *testing.T) {
	at, seen := kv.Position{Cluster: 1, Revision: 50}, kv.Place{Chain: 7, Term: 100, Seq: 5}
	for name, c := range map[string]struct {
		seen, head        kv.Place
		cluster, revision int64
		want              error
	}{
		"nothing new":                          {seen, seen, 1, 50, nil},
		"the next batch":                       {seen, kv.Place{Chain: 7, Term: 100, Seq: 6}, 1, 51, nil},
		"another leader":                       {seen, kv.Place{Chain: 7, Term: 101, Seq: 1}, 1, 51, nil},
		"restored, nothing is lost":            {seen, seen, 2, 9, nil},
		"restored, and a leader wrote":         {seen, kv.Place{Chain: 7, Term: 101, Seq: 1}, 1, 9, nil},
		"an older batch, bumped":               {seen, kv.Place{Chain: 7, Term: 100, Seq: 4}, 1, 5000, kv.ErrRolledBack},
		"an older term, bumped":                {seen, kv.Place{Chain: 7, Term: 99, Seq: 500}, 1, 5000, kv.ErrRolledBack},
		"an older batch, another cluster":      {seen, kv.Place{Chain: 7, Term: 100, Seq: 4}, 2, 5000, kv.ErrRolledBack},
		"another chain, the same cluster":      {seen, kv.Place{Chain: 8, Term: 1, Seq: 1}, 1, 51, nil},
		"another chain, another cluster":       {seen, kv.Place{Chain: 8, Term: 900, Seq: 1}, 2, 5000, kv.ErrClusterChanged},
		"another chain, an earlier revision":   {seen, kv.Place{Chain: 8, Term: 900, Seq: 1}, 1, 49, kv.ErrRegressed},
		"an older build leads":                 {seen, kv.Place{}, 1, 51, nil},
		"an older build leads, another store":  {seen, kv.Place{}, 2, 51, kv.ErrClusterChanged},
		"no place was read, a chain begins":    {kv.Place{}, seen, 1, 51, nil},
		"no place was read, another cluster":   {kv.Place{}, seen, 2, 51, kv.ErrClusterChanged},
		"no place was read, earlier revisions": {kv.Place{}, kv.Place{}, 1, 49, kv.ErrRegressed},
	} {
		err := kv.CheckHead(at, c.seen, kv.Stat{Cluster: uint64(c.cluster), Revision: c.revision, Head: kv.Head{Place: c.head}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A term is above all terms that its leader knows. Without knowledge, its clock makes it exceed the terms before a
// restore.
func TestNextTerm(t *testing.T) {
	now := time.UnixMilli(1000)
	for name, c := range map[string]struct{ head, seen, want kv.Place }{
		"by the clock":                {kv.Place{Chain: 7, Term: 900, Seq: 5}, kv.Place{}, kv.Place{Chain: 7, Term: 1000}},
		"the clock is behind":         {kv.Place{Chain: 7, Term: 5000, Seq: 5}, kv.Place{}, kv.Place{Chain: 7, Term: 5001}},
		"above what the mirror saw":   {kv.Place{Chain: 7, Term: 900}, kv.Place{Chain: 7, Term: 5000}, kv.Place{Chain: 7, Term: 5001}},
		"an empty store, known":       {kv.Place{}, kv.Place{Chain: 7, Term: 5000}, kv.Place{Chain: 7, Term: 5001}},
		"the mirror saw another mesh": {kv.Place{Chain: 7, Term: 900}, kv.Place{Chain: 8, Term: 5000}, kv.Place{Chain: 7, Term: 1000}},
	} {
		if got := c.head.Next(c.seen, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	a, b := (kv.Place{}).Next(kv.Place{}, now), (kv.Place{}).Next(kv.Place{}, now)
	if !a.Known() || a.Chain == b.Chain || a.Term != 1000 {
		t.Errorf("two new chains: %v, %v", a, b)
	}
	if end := (kv.Place{Chain: 7, Term: 1<<62 - 1}); end.Next(kv.Place{}, now).Chain == 7 || (kv.Place{}).Next(end, now).Chain == 7 || end.Next(kv.Place{}, now).Term != 1000 {
		t.Errorf("after the last term: %v", end.Next(kv.Place{}, now))
	}
	if p, err := kv.ParsePlace(a.String()); err != nil || p != a {
		t.Errorf("%v is read as %v, %v", a, p, err)
	}
	for _, bad := range []string{"", "1.2", "0000000000000000.1.1", "x.1.1", "1.-1.1", "1.1.1.1", "7.4611686018427387904.1"} {
		if p, err := kv.ParsePlace(bad); err == nil {
			t.Errorf("%q is read as %v", bad, p)
		}
	}
}

// The head states the place of the newest complete state, even in the middle of a batch. A term without a successor is
// not accepted.
func TestPlaceOfHeads(t *testing.T) {
	s := kvtest.Start(t)
	e := epoch(t, s.Store, "a")
	first := kv.Place{Chain: 7, Term: 100, Seq: 1}
	commit(t, s.Store, kv.Batch{Epoch: e, Place: first, Puts: services(t, 1, 80)})
	updates := s.Watch(within(t), kv.Position{Revision: load(t, s.Store, 0).Store})
	second := kv.Place{Chain: 7, Term: 101, Seq: 2}
	commit(t, s.Store, kv.Batch{Epoch: e, Place: second, Puts: services(t, 250, 81)})
	for _, want := range []kv.Place{first, first, second} {
		if u := next(t, updates); u.Head == nil || u.Head.Place != want {
			t.Errorf("head %+v, want the place %v", u.Head, want)
		}
	}
	before := load(t, s.Store, 0).Head.Revision
	if same := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Chain: 7, Term: 101, Seq: 3}}); same != before {
		t.Error("an empty batch of the same term wrote a head")
	}
	if again := commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Chain: 7, Term: 102, Seq: 1}}); again == before {
		t.Error("an empty batch of a new term wrote no head")
	}
	commit(t, s.Store, kv.Batch{Epoch: e, Place: kv.Place{Chain: 7, Term: 1 << 62}, Puts: services(t, 1, 82)})
	if p := load(t, s.Store, 0).Head.Place; p.Known() {
		t.Errorf("a term without a next one is believed: %v", p)
	}
}
