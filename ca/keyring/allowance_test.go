package keyring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// An allowance bounds the certificates that may be issued from it. This test needs no etcd, disk or clock.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestAllowance(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rec := &record{Version: 7, Generation: 3, Epochs: []epoch{{Number: 2, Status: Active}}}
	a := allowance("one", rec, 10, now)
	if a.Until.Sub(now) < time.Hour || a.Last.Sub(a.Until) > 4*time.Hour || a.Epoch != 2 || a.Generation != 3 || a.Version != 7 {
		t.Fatalf("%+v", a)
	}
	state := &State{identities: map[string]revoked{"denied": {}}, serials: map[string]revoked{"bad": {}}}
	type ask struct {
		i     Issue
		shown time.Duration // until its end
		after time.Duration // since the allowance was recorded
		state *State
		spent int
		a     *Allowance
	}
	for name, c := range map[string]struct {
		edit func(*ask)
		want string // part of the refusal; "": it is issued
	}{
		"a renewal":                         {func(*ask) {}, ""},
		"an hour later":                     {func(q *ask) { q.after = time.Hour }, ""},
		"after its end":                     {func(q *ask) { q.after = 76 * time.Minute }, "ended at"},
		"by a clock that is an hour slow":   {func(q *ask) { q.after = -time.Hour }, "before the allowance was recorded"},
		"without a certificate":             {func(q *ask) { q.i.Previous = "" }, "first certificates are not issued"},
		"with one that has ended":           {func(q *ask) { q.shown = 0 }, "first certificates are not issued"},
		"with one that lasts longer":        {func(q *ask) { q.shown = 5 * time.Hour }, "longer than its renewal would"},
		"a denied identity":                 {func(q *ask) { q.i.Identity = "denied" }, ErrRevoked.Error()},
		"a revoked certificate":             {func(q *ask) { q.i.Previous = "bad" }, ErrRevoked.Error()},
		"another epoch":                     {func(q *ask) { q.i.Epoch = 3 }, "epoch 2"},
		"another bundle":                    {func(q *ask) { q.i.Generation = 4 }, "bundle 3"},
		"for longer than 4 h":               {func(q *ask) { q.i.NotAfter = now.Add(4*time.Hour + time.Second) }, "outlives"},
		"the last":                          {func(q *ask) { q.spent = 9 }, ""},
		"when it is used up":                {func(q *ask) { q.spent = 10 }, "used up"},
		"none was recorded":                 {func(q *ask) { q.a = &Allowance{} }, "no allowance was recorded"},
		"while what etcd holds is refused":  {func(q *ask) { s := *state; s.Alarm = ErrRolledBack; q.state = &s }, "turned back"},
		"which another replica's may cover": {func(q *ask) { b := a; b.Replica = "two"; q.a = &b }, ""},
	} {
		q := ask{i: Issue{Serial: "new", Identity: "x", Epoch: 2, Generation: 3, Previous: "old", NotAfter: now.Add(3 * time.Hour)}, shown: 90 * time.Minute, state: state, a: &a}
		c.edit(&q)
		p := newBalance(*q.a)
		for i := range q.spent {
			p.spend(Issue{Identity: fmt.Sprint("other", i), Previous: fmt.Sprint(i)})
		}
		err := p.refuses(q.i, now.Add(q.shown), q.state, now.Add(q.after))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrAllowance) && !errors.Is(err, ErrRevoked)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A renewal that cannot be written to disk is not issued, nor is any later one, since the state of the disk is unknown
// then. The journal is synced before each issue: a pipe accepts writes and cannot be synced (fsync(2), EINVAL).
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestSpendWaitsForTheDisk(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	read, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	s := &allowanceFile{balance: newBalance(allowance("one", &record{Epochs: []epoch{{Number: 1, Status: Active}}}, 10, now)), file: written}
	k := &Keyring{cfg: Config{Now: func() time.Time { return now }}, allowances: s}
	k.current.Store(&published{state: &State{}})
	renewal := Issue{Serial: "new", Identity: "x", Epoch: 1, Previous: "old", NotAfter: now.Add(2 * time.Hour)}
	if err := k.Spend(renewal, now.Add(time.Hour)); err == nil || errors.Is(err, ErrAllowance) {
		t.Errorf("what was not synced is given out: %v", err)
	}
	line := make([]byte, 1000)
	if n, err := read.Read(line); err != nil || !strings.Contains(string(line[:n]), `"new"`) {
		t.Errorf("it was not written either: %q, %v", line[:n], err)
	}
	if err := k.Spend(renewal, now.Add(time.Hour)); !errors.Is(err, ErrAllowance) || len(s.issued) != 0 {
		t.Errorf("after that: %v, %d are to be journalled", err, len(s.issued))
	}
}

// For any number of callers, with any number of certificates, the number of renewals is at most the allowance; one
// identity leaves a part to others.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestAllowanceIsShared(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newBalance(allowance("one", &record{Epochs: []epoch{{Number: 1, Status: Active}}}, 100, now))
	issue := func(identity, shown string) bool {
		i := Issue{Identity: identity, Epoch: 1, Previous: shown, NotAfter: now.Add(2 * time.Hour)}
		if p.refuses(i, now.Add(time.Hour), &State{}, now) != nil {
			return false
		}
		p.spend(i)
		return true
	}
	got := 0
	for range 10 {
		if issue("greedy", "one") {
			got++
		}
	}
	if got != 2 {
		t.Errorf("%d renewals of one certificate", got)
	}
	for i := range 500 {
		if issue("greedy", fmt.Sprint(i)) {
			got++
		}
	}
	if got != 50 {
		t.Errorf("one identity got %d of 100", got)
	}
	if !issue("good", "g") {
		t.Error("another identity found nothing left")
	}
	for i := range 500 {
		issue(fmt.Sprint("crowd", i), fmt.Sprint("c", i))
	}
	if p.spent != 100 {
		t.Errorf("%d of 100 were issued", p.spent)
	}
}
