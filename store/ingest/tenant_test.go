//go:build !race

package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
)

// one is an object of some bytes.
func one(bytes int) charge { return charge{1, bytes} }

func names(ids []object.ID) string {
	var all []string
	for _, id := range ids {
		all = append(all, id.Name)
	}
	return strings.Join(all, " ")
}

func refusedOf(l *ledger) string {
	var all []string
	for _, r := range l.refusals() {
		all = append(all, r.id.Name)
	}
	return strings.Join(all, " ")
}

func TestLedger(t *testing.T) {
	a, b, c := named("shop", "a"), named("shop", "b"), named("shop", "c")
	two := func(l *ledger) { // a and b are applied, and the budget of two objects or 100 bytes is full
		l.offer(a, 0, false, one(60))
		l.offer(b, 0, false, one(40))
		l.admit()
	}
	for what, test := range map[string]struct {
		budget         Budget
		do             func(*ledger)
		taken, refused string
		used           charge
	}{
		"in order of age, then name": {Budget{Objects: 2}, func(l *ledger) {
			l.offer(a, 9, false, one(1))
			l.offer(c, 5, false, one(1))
			l.offer(b, 5, false, one(1))
		}, "b c", "a", charge{2, 2}},
		"a new one at the limit":                   {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(c, 0, false, one(1)) }, "", "c", charge{2, 100}},
		"an edit at the limit of objects":          {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(a, 0, false, one(500)) }, "a", "", charge{2, 540}},
		"growth at the limit of bytes":             {Budget{Bytes: 100}, func(l *ledger) { two(l); l.offer(b, 0, false, one(41)) }, "", "b", charge{2, 100}},
		"shrinking makes room at once":             {Budget{Bytes: 100}, func(l *ledger) { two(l); l.offer(a, 0, false, one(90)); l.offer(b, 0, false, one(10)) }, "b a", "", charge{2, 100}},
		"what does not fit holds nobody up":        {Budget{Bytes: 100}, func(l *ledger) { l.offer(a, 0, false, one(101)); l.offer(b, 0, false, one(99)) }, "b", "a", charge{1, 99}},
		"exempt counts and is taken":               {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(c, 0, true, one(1)) }, "c", "", charge{3, 101}},
		"exempt is counted first":                  {Budget{Objects: 1}, func(l *ledger) { l.offer(a, 0, false, one(1)); l.offer(c, 0, true, one(1)) }, "c", "a", charge{1, 1}},
		"a delete makes room":                      {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(c, 0, false, one(1)); l.admit(); l.drop(a) }, "c", "", charge{2, 41}},
		"withdrawn":                                {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(c, 0, false, one(1)); l.admit(); l.withdraw(c); l.drop(a) }, "", "", charge{1, 40}},
		"another tenant":                           {Budget{Objects: 2}, func(l *ledger) { two(l); l.offer(named("other", "x"), 0, false, one(1)) }, "x", "", charge{2, 100}},
		"over the limit, an edit shrinks":          {Budget{Bytes: 50}, func(l *ledger) { l.addApplied(a, 0, false, one(80)); l.offer(a, 0, false, one(70)) }, "a", "", charge{1, 70}},
		"over the limit of objects, an edit grows": {Budget{Objects: 1}, func(l *ledger) { two(l); l.addApplied(b, 0, false, one(40)); l.offer(a, 0, false, one(70)) }, "a", "", charge{2, 110}},
		"a label joins namespaces": {Budget{Objects: 2}, func(l *ledger) {
			l.label("shop", "t")
			l.label("other", "t")
			two(l)
			l.offer(named("other", "x"), 0, false, one(1))
		}, "", "x", charge{2, 100}},
		"a label that goes makes room": {Budget{Objects: 2}, func(l *ledger) {
			l.label("shop", "t")
			l.label("other", "t")
			two(l)
			l.offer(named("other", "x"), 0, false, one(1))
			l.admit()
			l.label("other", "")
		}, "x", "", charge{2, 100}},
	} {
		l := newLedger(test.budget)
		test.do(l)
		taken := names(l.admit())
		used := l.accounts[l.tenant("shop")].used
		if refused := refusedOf(l); taken != test.taken || refused != test.refused || used != test.used {
			t.Errorf("%s: took %q, refused %q, used %+v; want %q, %q, %+v", what, taken, refused, used, test.taken, test.refused, test.used)
		}
	}
}

// After any edits: the usage equals a recount; no growth exceeds a limit; a version is refused if and only if it does
// not fit.
func TestLedgerUnderRandomEdits(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		budget := Budget{Objects: r.IntN(12), Bytes: r.IntN(300)}
		l := newLedger(budget)
		stands, wants, free := map[object.ID]charge{}, map[object.ID]charge{}, map[object.ID]bool{}
		for range 400 {
			namespace := fmt.Sprintf("n%d", r.IntN(4))
			id := named(namespace, fmt.Sprintf("o%d", r.IntN(12)))
			before := map[string]charge{}
			for tenant, a := range l.accounts {
				before[tenant] = a.used
			}
			relabelled := false
			switch n := r.IntN(10); {
			case n == 0:
				l.label(namespace, []string{"", "x", "y"}[r.IntN(3)])
				relabelled = true
			case n < 3:
				l.drop(id)
				delete(stands, id)
				delete(wants, id)
			case n == 3:
				l.withdraw(id)
				delete(wants, id)
			default:
				free[id] = r.IntN(8) == 0
				wants[id] = one(1 + r.IntN(60))
				l.offer(id, int64(id.Name[1]%3), free[id], wants[id])
			}
			exempt := false
			for _, taken := range l.admit() {
				stands[taken] = wants[taken]
				delete(wants, taken)
				exempt = exempt || free[taken]
			}
			recount(t, l, stands, wants)
			for tenant, a := range l.accounts {
				was := before[tenant]
				if over := budget.Objects > 0 && a.used[inObjects] > max(budget.Objects, was[inObjects]); over && !exempt && !relabelled {
					t.Fatalf("seed %d: %s grew to %+v over %+v", seed, tenant, a.used, budget)
				}
				if over := budget.Bytes > 0 && a.used[inBytes] > max(budget.Bytes, was[inBytes]); over && !exempt && !relabelled {
					t.Fatalf("seed %d: %s grew to %+v over %+v", seed, tenant, a.used, budget)
				}
				for _, c := range a.waiting {
					if next := a.used.minus(c.applied).plus(*c.wanted); (budget.Objects == 0 || next[inObjects] <= budget.Objects) && (budget.Bytes == 0 || next[inBytes] <= budget.Bytes) {
						t.Fatalf("seed %d: %v is refused though %+v would fit", seed, c.id, next)
					}
				}
			}
		}
	}
}

func recount(t *testing.T, l *ledger, stands, wants map[object.ID]charge) {
	t.Helper()
	used, waiting := map[string]charge{}, map[object.ID]charge{}
	for id, c := range stands {
		used[l.tenant(id.Namespace)] = used[l.tenant(id.Namespace)].plus(c)
	}
	for tenant, a := range l.accounts {
		if a.used != used[tenant] {
			t.Fatalf("%s: counted %+v, recounted %+v", tenant, a.used, used[tenant])
		}
		delete(used, tenant)
		for _, c := range a.waiting {
			waiting[c.id] = *c.wanted
		}
	}
	if len(used) > 0 || !maps.Equal(waiting, wants) {
		t.Fatalf("not counted %v; waiting %v, want %v", used, waiting, wants)
	}
}

// If nothing was applied before, the same versions are refused for any order of offers: one admit decides about all of
// them.
func TestLedgerOrderOfOffers(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		budget := Budget{Objects: 5, Bytes: 150}
		var all []*demand
		for i := range 15 {
			all = append(all, &demand{id: named("n", fmt.Sprint(i)), created: int64(r.IntN(4)), applied: one(1 + r.IntN(60))})
		}
		want := ""
		for try := range 5 {
			l := newLedger(budget)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, c := range all {
				l.offer(c.id, c.created, false, c.applied)
			}
			l.admit()
			if got := refusedOf(l); try == 0 {
				want = got
			} else if got != want || got == "" {
				t.Fatalf("seed %d: refused %q, and %q before", seed, got, want)
			}
		}
	}
}

// Objects without records leave no state.
func TestLedgerForgets(t *testing.T) {
	l := newLedger(Budget{Objects: 1})
	l.offer(named("n", "a"), 0, false, one(1))
	l.admit()
	l.offer(named("n", "a"), 0, false, charge{})
	l.admit()
	l.label("m", "t")
	l.label("m", "")
	l.admit()
	if len(l.accounts)+len(l.labels)+len(l.changed) > 0 {
		t.Errorf("%+v", l)
	}
}

func TestLedgerTexts(t *testing.T) {
	l := newLedger(Budget{Objects: 2, Bytes: 200})
	l.label("shop", "payments")
	l.offer(named("shop", "a"), 0, false, one(30))
	l.offer(named("shop", "b"), 0, false, one(30))
	l.admit()
	l.offer(named("shop", "a"), 0, false, one(300))
	l.offer(named("shop", "c"), 0, false, one(30))
	l.admit()
	var all []string
	for _, r := range l.refusals() {
		all = append(all, r.why)
	}
	for _, u := range l.above(warnAt) {
		all = append(all, l.warning(u))
	}
	want := []string{
		`refused: with it tenant "navarch.io/tenant=payments" would have 330 bytes of configuration, and 200 are allowed (--tenant-max-bytes): the previous version stays in effect`,
		`refused: with it tenant "navarch.io/tenant=payments" would have 3 objects, and 2 are allowed (--tenant-max-objects): the object is not in effect`,
		`tenant "navarch.io/tenant=payments" is near the limit of its budget, where new and growing objects are refused: 2 of 2 objects 30 % of 200 bytes`,
	}
	if !slices.Equal(all, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
}
