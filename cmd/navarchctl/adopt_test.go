package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// Foreign changes of the store are printed by kind, and adopted only with --yes while no ingester leads; the candidacy
// ends afterwards.
func TestAdopt(t *testing.T) {
	s := kvtest.Start(t)
	run := func(yes bool) (string, error) {
		var out bytes.Buffer
		err := adoptStored(t.Context(), s.Store, &out, adoption{yes: yes, who: record{Reason: "meant", OSUser: "me"}})
		return out.String(), err
	}
	head := func() kv.Head {
		stat, err := s.Stat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stat.Head
	}
	if _, err := run(true); err == nil || !strings.Contains(err.Error(), "there is no head") {
		t.Fatalf("an empty store: %v", err)
	}
	e := s.Elect("ingester")
	s.Put("records/Service///shop/a", "one")
	s.Put("records/Endpoints///shop/a", "one")
	s.MustCommit(kv.Batch{Epoch: e})
	if out, err := run(true); err != nil || !strings.Contains(out, "nothing to adopt") {
		t.Fatalf("nothing differs: %q, %v", out, err)
	}
	s.Put("records/Service///shop/a", "two")
	s.Put("records/Endpoints///shop/\x1b", "two")
	before := head()
	if out, err := run(true); !errors.Is(err, errLed) || !strings.Contains(err.Error(), "(ingester)") || !strings.Contains(out, "HEAD SAYS") {
		t.Fatalf("while somebody leads: %q, %v", out, err)
	}
	s.Depose(e)
	out, err := run(false)
	if want := "KIND       HEAD SAYS  STORED  DIFFERS\nEndpoints  1          2       number\nService    1          1       values\n"; err != nil || unpadded(out) != unpadded(want) || head().Revision != before.Revision {
		t.Fatalf("without --yes: %q, %v", out, err)
	}
	if out, err = run(true); err != nil || !strings.Contains(out, "adopted: the head at revision") {
		t.Fatalf("with --yes: %q, %v", out, err)
	}
	state, err := s.Load(t.Context(), 0)
	if err != nil || state.Head.LastComplete != before.Revision || !state.Said.Known() || len(state.Contents.Differ(state.Said)) != 0 || state.Contents.Kind("Endpoints").Count != 2 {
		t.Fatalf("after it: %+v, %v", state, err)
	}
	if out, err := run(true); err != nil || !strings.Contains(out, "nothing to adopt") {
		t.Fatalf("again: %q, %v", out, err)
	}
	last, is, err := lastRecord(t.Context(), s.Store)
	if err != nil || !is || !last.Done || last.Reason != "meant" || last.OSUser != "me" || last.Kinds["Endpoints"] != 2 {
		t.Fatalf("the record of it: %+v, %v", last, err)
	}
	if out, err := run(false); err != nil || !strings.Contains(out, `by me on`) || !strings.Contains(out, `reason "meant"`) {
		t.Errorf("the record is not shown: %q, %v", out, err)
	}
	s.WriteHead(&model.ContentsValue{Algorithm: 9})
	if out, err := run(true); err != nil || !strings.Contains(out, "not known") || !head().Contents.Known() {
		t.Fatalf("over a head of a newer build: %q, %v", out, err)
	}
	s.Interrupted(s.Elect("ingester"), nil, nil)
	if _, err := run(true); err == nil || !strings.Contains(err.Error(), "in the middle of a batch") {
		t.Fatalf("an incomplete head: %v", err)
	}
}

// After a restore no kind differs: the stored records are adopted over the position that a replica's alarm names, in
// its chain.
func TestAdoptAfterARestore(t *testing.T) {
	s := kvtest.Start(t)
	e := s.Elect("ingester")
	s.MustCommit(kv.Batch{Epoch: e})
	s.Depose(e)
	run := func(a adoption) (string, kv.Place, error) {
		var out bytes.Buffer
		err := adoptStored(t.Context(), s.Store, &out, a)
		stat, none := s.Stat(t.Context())
		if none != nil {
			t.Fatal(none)
		}
		return out.String(), stat.Head.Place, err
	}
	_, before, _ := run(adoption{})
	for name, over := range map[string]kv.Place{
		"of this chain, by a leader whose clock was ahead": {Chain: before.Chain, Term: before.Term + 1e12, Seq: 7},
		"of the chain of another etcd":                     {Chain: before.Chain + 1, Term: 5, Seq: 7},
	} {
		_, was, _ := run(adoption{})
		if out, now, err := run(adoption{over: over}); err != nil || now != was || !strings.Contains(out, "the stored records (0) match the head") {
			t.Errorf("%s, without --yes: %q, %v, %v", name, out, now, err)
		}
		if out, now, err := run(adoption{yes: true, over: over}); err != nil || !over.Before(now) || !strings.Contains(out, "adopted: ") {
			t.Errorf("%s: %q, %v is not after %v, %v", name, out, now, over, err)
		}
	}
}

// unpadded returns a table without its padding.
func unpadded(table string) string {
	lines := strings.Split(table, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}
