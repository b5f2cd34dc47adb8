package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

func refusalOf(who, name string, at time.Time) serve.Refusal {
	return serve.Refusal{View: "shop", Type: xds.Cluster, Name: name, Version: "v1", Identity: who, At: at}
}

// sharing is one replica's verdicts, run over an etcd until the test or the returned function ends it.
func sharing(t *testing.T, store *kv.Store, name string) (*verdicts, func()) {
	t.Helper()
	v := newVerdicts(name, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.run(ctx, store, slog.New(slog.DiscardHandler)) }()
	stop := func() {
		cancel()
		if err, told := <-done; told && err != nil {
			t.Error(err)
		}
		close(done)
	}
	t.Cleanup(cancel)
	return v, stop
}

// comes waits until something is so.
func comes(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // a poll, not a guess of when
	}
}

// Two identities refuse at one replica and a third at another: all withhold the version, one that starts later too, also
// when those that told it have ended. An identity that refuses on two replicas counts once.
func TestVerdictsOfAllReplicas(t *testing.T) {
	etcd := kvtest.Start(t)
	a, stopA := sharing(t, etcd.Connect(), "a")
	b, stopB := sharing(t, etcd.Connect(), "b")
	bad := &xds.Resource{Type: xds.Cluster, Name: "bad", Version: "v1"}
	suspect := &xds.Resource{Type: xds.Cluster, Name: "suspect", Version: "v1"}
	now := time.Now()
	a.Refuse(refusalOf("one", "suspect", now))
	b.Refuse(refusalOf("one", "suspect", now))
	b.Refuse(refusalOf("two", "suspect", now))
	a.Refuse(refusalOf("one", "bad", now))
	a.Refuse(refusalOf("two", "bad", now))
	if a.Refused("shop", bad) {
		t.Error("two identities are no verdict")
	}
	b.Refuse(refusalOf("three", "bad", now))
	comes(t, "both withhold it", func() bool { return a.Refused("shop", bad) && b.Refused("shop", bad) })
	if b.Refused("other", bad) || b.Refused("shop", &xds.Resource{Type: xds.Cluster, Name: "bad", Version: "v2"}) {
		t.Error("another view or version is withheld")
	}
	// Both have heard all that was refused: what is withheld comes last in each list.
	if a.Refused("shop", suspect) || b.Refused("shop", suspect) {
		t.Error("one identity counts twice")
	}
	stopA()
	stopB()
	c, _ := sharing(t, etcd.Connect(), "c")
	comes(t, "a replica that starts later withholds it", func() bool { return c.Refused("shop", bad) })
	if c.Refused("shop", suspect) {
		t.Error("one identity counts twice")
	}
}

// A flood of refusals is bounded, and takes from whoever makes it.
func TestTestimonyIsBounded(t *testing.T) {
	var mine testimony
	now := time.Now()
	if !mine.add(witnessOf(refusalOf("honest", "bad", now))) || mine.add(witnessOf(refusalOf("honest", "bad", now.Add(time.Second)))) {
		t.Error("what is new is told once")
	}
	for i := range 1000 {
		mine.add(witnessOf(refusalOf("one", fmt.Sprint(i), now)))
	}
	if len(mine.all) != 1+maxPerIdentity || mine.all[1].Name != "984" {
		t.Errorf("one identity has %d of %+v", len(mine.all)-1, mine.all[1])
	}
	for i := range 3000 {
		mine.add(witnessOf(refusalOf(fmt.Sprint("two", i%100), fmt.Sprint(i), now)))
	}
	if len(mine.all) != maxWitnesses || mine.all[0].Name != "bad" {
		t.Errorf("%d witnesses, the oldest %+v", len(mine.all), mine.all[0])
	}
	mine.add(witnessOf(refusalOf("late", "worse", now)))
	if len(mine.all) != maxWitnesses || mine.all[0].Name != "bad" || mine.all[maxWitnesses-1].Name != "worse" {
		t.Error("a flood leaves no room for others")
	}
	for i := range 1000 {
		mine.add(witnessOf(refusalOf(fmt.Sprint("each", i), strings.Repeat("n", 2000), now)))
	}
	raw, err := mine.encode()
	all, errs := decodeTestimony(raw)
	if err != nil || errs != nil || len(raw) > maxTestimony || len(all) == 0 || all[len(all)-1] != mine.all[len(mine.all)-1] {
		t.Errorf("%d bytes, %d witnesses: %v, %v", len(raw), len(all), err, errs)
	}
	if mine.add(witnessOf(refusalOf("x", strings.Repeat("n", maxWord+1), now))) || mine.add(witnessOf(refusalOf("x", "", now))) {
		t.Error("what is too long or names nothing is shared")
	}
	if mine.prune(now.Add(verdictTime - 2*time.Second)) {
		t.Error("forgotten too early")
	}
	if !mine.prune(now.Add(verdictTime)) || len(mine.all) > 0 {
		t.Error("not forgotten")
	}
}

// A refusal that is repeated counts from its newest time, and is told again after a while.
func TestTestimonyRepeated(t *testing.T) {
	var mine testimony
	now := time.Now()
	mine.add(witnessOf(refusalOf("one", "bad", now)))
	if !mine.add(witnessOf(refusalOf("one", "bad", now.Add(verdictTime/10)))) || len(mine.all) != 1 || mine.all[0].At != now.Add(verdictTime/10).Unix() {
		t.Errorf("%+v", mine.all)
	}
}

// Each list is heard once for each revision, never one's own, and one that cannot be read is named.
func TestHearing(t *testing.T) {
	one := testimony{all: []witness{witnessOf(refusalOf("one", "bad", time.Now()))}}
	raw, err := one.encode()
	if err != nil {
		t.Fatal(err)
	}
	h := hearing{}
	folder := func(blobs ...kv.Blob) kv.Folder { return kv.Folder{Blobs: blobs} }
	mine, a := kv.Blob{Path: "verdicts/me", Raw: raw, Revision: 1}, kv.Blob{Path: "verdicts/a", Raw: raw, Revision: 2}
	hear := func(want int, blobs ...kv.Blob) {
		t.Helper()
		if news, problems := h.hear(folder(blobs...), "verdicts/me"); len(news) != want || problems != nil {
			t.Errorf("heard %v, %v", news, problems)
		}
	}
	hear(1, mine, a)
	hear(0, mine, a)
	a.Revision = 3
	hear(1, mine, a)
	hear(0)
	if len(h) > 0 {
		t.Errorf("remembers %v", h)
	}
	_, problems := h.hear(folder(kv.Blob{Path: "verdicts/b", Raw: []byte("{"), Revision: 1}), "verdicts/me")
	if len(problems) != 1 || !strings.Contains(problems[0], "verdicts/b") {
		t.Errorf("problems %q", problems)
	}
}

func FuzzTestimony(f *testing.F) {
	one := testimony{all: []witness{witnessOf(refusalOf("one", "bad", time.Unix(1, 0)))}}
	raw, err := one.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`[{"type":"nothing"}]`))
	f.Add([]byte(strings.Repeat("[", maxTestimony+1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		all, err := decodeTestimony(raw)
		if err != nil {
			if all != nil {
				t.Error("an error with witnesses")
			}
			return
		}
		if len(all) > maxWitnesses || slices.ContainsFunc(all, func(w witness) bool { return !w.valid() }) {
			t.Errorf("%+v", all)
		}
		for _, w := range all {
			if w.refusal().Type == xds.Unknown {
				t.Error(errors.New("a type that is none"))
			}
		}
	})
}
