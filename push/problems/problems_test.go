package problems

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

func wrong(name, field, message string) model.Problem {
	return model.Problem{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: name}, Field: field, Code: problem.NotFound,
		Severity: problem.Warning, Message: message}
}

// replica is a Loop whose problems the test sets.
type replica struct {
	found    atomic.Pointer[[]model.Problem]
	revision atomic.Int64
	asked    atomic.Int64 // calls of Find
}

func (r *replica) says(found ...model.Problem) {
	r.found.Store(&found)
	r.revision.Add(1)
}

func start(t *testing.T, store *kv.Store, name string) (*replica, func()) {
	t.Helper()
	r := &replica{}
	r.says()
	l := New(Config{Name: name, Revision: r.revision.Load, Every: 2 * time.Millisecond, Max: 2 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Find: func() []model.Problem { r.asked.Add(1); return *r.found.Load() }})
	return r, kvtest.Run(t, func(ctx context.Context) error { return l.Run(ctx, store) })
}

// lists waits until the leader lists these problems: "field xN" for each, found by N replicas.
func lists(t *testing.T, c *Collector, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) { // a poll, not a guess of when
		var got []string
		all, _ := c.All()
		for _, one := range all {
			got = append(got, fmt.Sprintf("%s x%d", one.Field, one.Replicas))
		}
		if strings.Join(got, ", ") == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the leader lists %q, want %q", got, want)
		}
	}
}

// Istio's code is part of a problem; the list of an older build has no code, and an unknown code counts as absent.
func TestAnalyzersCode(t *testing.T) {
	one := wrong("v", "spec.a", "x")
	one.Analyzer = problem.ReferencedResourceNotFound
	raw, err := listOf([]model.Problem{one}).encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		raw  string
		want problem.Analyzer
	}{
		{string(raw), problem.ReferencedResourceNotFound},
		{strings.Replace(string(raw), `"analyzer":"IST0101",`, "", 1), ""},
		{strings.Replace(string(raw), "IST0101", "IST9999", 1), ""},
	} {
		if found, _, err := decode([]byte(c.raw)); err != nil || len(found) != 1 || found[0].Analyzer != c.want || found[0].Message != "x" {
			t.Errorf("%s: %+v, %v", c.raw, found, err)
		}
	}
}

// The leader lists the problems of all replicas, each once. It drops problems that are corrected, and those of a
// replica that ends. A replica whose plan is unchanged does not search, and one without problems writes nothing.
func TestReplicasReportToTheLeader(t *testing.T) {
	etcd := kvtest.Start(t)
	c := NewCollector(slog.New(slog.DiscardHandler))
	stopLeading := kvtest.Run(t, func(ctx context.Context) error { return c.Run(ctx, etcd.Connect()) })
	a, stopA := start(t, etcd.Connect(), "a")
	b, _ := start(t, etcd.Connect(), "b")
	a.says(wrong("v", "spec.a", "x"), wrong("v", "spec.b", "x"), wrong("v", "spec.a", "x"))
	b.says(wrong("v", "spec.b", "x"))
	lists(t, c, "spec.a x1, spec.b x2")
	if all, more := c.All(); all[0].First != "a" || all[0].Problem != wrong("v", "spec.a", "x") || more != 0 {
		t.Errorf("%+v, %d", all, more)
	}
	asked := a.asked.Load()
	b.says(wrong("v", "spec.c", "x"))
	lists(t, c, "spec.a x1, spec.b x1, spec.c x1")
	if now := a.asked.Load(); now != asked {
		t.Errorf("the plan of a replica stayed as it was, and it looked %d times", now-asked)
	}
	stopA()
	lists(t, c, "spec.c x1")
	b.says()
	lists(t, c, "")
	blobs, _, err := etcd.Store.Blobs(t.Context(), folder, 0)
	if err != nil || len(blobs) != 0 {
		t.Errorf("%d lists are there, %v", len(blobs), err)
	}
	b.says(wrong("v", "spec.d", "x"))
	lists(t, c, "spec.d x1")
	stopLeading()
	if all, _ := c.All(); all != nil {
		t.Error("who does not lead lists something")
	}
}

// A list is corrected a second or two after the plan has changed. Where finding problems or writing them is expensive,
// the pause grows with the cost, to a minute at most.
// Promise: metrics.md#refused-and-withheld-configuration
func TestListsFollowThePlan(t *testing.T) {
	etcd := kvtest.Start(t)
	c := NewCollector(slog.New(slog.DiscardHandler))
	kvtest.Run(t, func(ctx context.Context) error { return c.Run(ctx, etcd.Connect()) })
	r := &replica{}
	r.says(wrong("v", "spec.a", "names an object that is deleted"))
	l := New(Config{Name: "a", Revision: r.revision.Load, Log: slog.New(slog.DiscardHandler),
		Find: func() []model.Problem { return *r.found.Load() }})
	if l.cfg.Max != time.Minute {
		t.Errorf("a started replica builds everything after %v", l.cfg.Max)
	}
	for _, one := range []struct {
		took    time.Duration
		written int
		want    time.Duration
	}{
		{0, 0, 0}, {20 * time.Millisecond, 0, 980 * time.Millisecond},
		{0, 64 << 10, 2 * time.Second}, {2 * time.Second, 0, time.Minute},
	} {
		if got := l.pause(one.took, one.written); got != one.want {
			t.Errorf("finding took %v, %d bytes were written: the pause is %v, want %v", one.took, one.written, got, one.want)
		}
	}
	l.cfg.Max = 100 * time.Millisecond
	kvtest.Run(t, func(ctx context.Context) error { return l.Run(ctx, etcd.Connect()) })
	lists(t, c, "spec.a x1")
	changed := time.Now()
	r.says()
	if lists(t, c, ""); time.Since(changed) > 10*time.Second {
		t.Errorf("the problem was listed for %v after it was corrected", time.Since(changed))
	}
}

// A list is limited for each object, for the replica, and for each text, whatever the number of problems; errors come
// before warnings.
func TestListIsBounded(t *testing.T) {
	var found []model.Problem
	for i := range 5000 {
		p := wrong(fmt.Sprint("v", i/100), fmt.Sprintf("spec.http[%04d]", i%100), strings.Repeat("é", maxText))
		if i%100 == 99 {
			p.Severity = problem.Error
		}
		found = append(found, p, p)
	}
	forged := wrong("a/b", "spec", "x")
	l := listOf(append(found, forged))
	raw, err := l.encode()
	if err != nil || len(raw) > maxEncoded {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	back, more, err := decode(raw)
	if err != nil || len(back)+more != 5001 || len(back) == 0 || len(back) > maxProblems {
		t.Fatalf("%d problems and %d more, %v", len(back), more, err)
	}
	of := map[model.Key]int{}
	for i, p := range back {
		if of[p.Key]++; of[p.Key] > maxOfObject || len(p.Message) > maxText || (i < 50) != (p.Severity == problem.Error) {
			t.Fatalf("the %dth is %+v", i, p)
		}
	}
	again, err := listOf(append([]model.Problem{forged}, found...)).encode()
	if err != nil || !bytes.Equal(again, raw) {
		t.Error("the same problems in another order are another list")
	}
	for _, bad := range [][]byte{nil, []byte("{"), append([]byte(`{"problems":[]}`), bytes.Repeat([]byte(" "), maxEncoded)...)} {
		if _, _, err := decode(bad); err == nil {
			t.Errorf("%d bytes are a list", len(bad))
		}
	}
}

// Many invalid objects in one namespace do not displace the problems of others, also if the limit of bytes cuts the
// list.
func TestNamespacesShareTheList(t *testing.T) {
	for _, text := range []string{"x", strings.Repeat("x", maxText)} {
		var found []model.Problem
		for i := range 1000 {
			p := wrong(fmt.Sprint("v", i), "spec."+text, text)
			p.Severity = problem.Error
			found = append(found, p)
		}
		for _, namespace := range []string{"another", "zoo"} {
			p := wrong("one", "spec", "x")
			p.Key.Namespace = namespace
			found = append(found, p)
		}
		raw, err := listOf(found).encode()
		if err != nil {
			t.Fatal(err)
		}
		back, more, err := decode(raw)
		if err != nil || len(back)+more != len(found) {
			t.Fatalf("%d problems and %d more, %v", len(back), more, err)
		}
		for _, namespace := range []string{"another", "zoo"} {
			if !slices.ContainsFunc(back, func(p model.Problem) bool { return p.Key.Namespace == namespace }) {
				t.Errorf("of %d problems none is of namespace %s", len(back), namespace)
			}
		}
	}
}

// Whatever is stored, the decoded list is within the limits and valid.
func FuzzDecode(f *testing.F) {
	raw, err := listOf([]model.Problem{wrong("v", "spec.a", "x")}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"problems":[{"record":"Novel///a/b","severity":"error"},{"record":"Service///a/b","severity":"odd"}],"more":-5}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, more, err := decode(raw)
		if err != nil {
			return
		}
		if len(found) > maxProblems || more < 0 {
			t.Errorf("%d problems, %d more", len(found), more)
		}
		for _, p := range found {
			if p.Key.Check() != nil || len(p.Field) > maxText || len(p.Message) > maxText || p.Severity != problem.Error && p.Severity != problem.Warning {
				t.Errorf("%+v", p)
			}
		}
	})
}

// A list keeps both messages of a problem: without and with the names of private objects.
func TestListsKeepWholeMessages(t *testing.T) {
	want := wrong("a", "spec.hosts", "belongs to an object of another namespace")
	want.Whole = "belongs to VirtualService victim/secret"
	raw, err := listOf([]model.Problem{want}).encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, more, err := decode(raw); err != nil || more != 0 || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %d, %v", got, more, err)
	}
}
