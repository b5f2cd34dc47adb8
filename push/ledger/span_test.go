package ledger

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/model"
)

// A tenant's ledger is the same, byte for byte, whether or not its edits are planned together with those of others:
// revisions, times, counts, and which changes a revision or an object has. An operator sees the whole publication.
// Promise: delivery.md#the-ledger-of-deliveries
func TestTenantsLedgersAreEqual(t *testing.T) {
	answers := func(t *testing.T, others bool) (text string, first int64) {
		synctest.Test(t, func(t *testing.T) {
			l, began := New(), time.Now()
			l.Report(func(namespace string) string { return namespace[:1] }, func(Delivery) {})
			p := Plan{Span: model.Span{First: 5, Last: 6, Since: began.Add(2 * time.Second)},
				Objects: []model.Key{service("s1", "web"), service("s2", "api")},
				Spans: map[string]model.Span{"s1": {First: 5, Last: 5, Since: began.Add(2 * time.Second)},
					"s2": {First: 6, Last: 6, Since: began.Add(3 * time.Second)}},
				Views: map[string]int{"s1": 1, "s2": 2}}
			if others {
				p.First, p.Last, p.Since = 3, 9, began.Add(time.Second)
				p.Objects = append([]model.Key{service("pay", "x")}, p.Objects...)
				p.Spans["pay"], p.Views["pay"] = model.Span{First: 3, Last: 9, Since: p.Since}, 1
			}
			time.Sleep(4 * time.Second)
			streams := []string{"s1", "s2", "s2"}
			if others {
				streams = append(streams, "pay")
			}
			d := publish(l, p, streams...)
			time.Sleep(time.Second)
			d[0].Pay(1, time.Now(), never)
			d[1].Pay(1, time.Now(), never)
			own := func(namespace string) bool { return namespace[:1] == "s" }
			all := []any{l.Changes(own, false)}
			web := Object{"s1", func(k model.Key) bool { return k == service("s1", "web") }}
			for _, revision := range []int64{3, 4, 5, 6, 8} {
				for _, of := range []Object{{}, web} {
					got := l.Find(revision, of, own, false)
					_, owes := d[2].Owes(got.Of)
					all = append(all, got.Counts, got.Exact, got.Changes, got.Paid, owes)
				}
			}
			raw, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			text, first = string(raw), l.Changes(everywhere, true)[0].First
		})
		return text, first
	}
	alone, _ := answers(t, false)
	beside, first := answers(t, true)
	if alone != beside || first != 3 {
		t.Errorf("beside others (whole from %d)\n%s\nalone\n%s", first, beside, alone)
	}
}

// Without exactly known revisions of one of its namespaces, a tenant has the span of the publication: a wait is never
// over too early.
func TestSpansThatAreNotKnown(t *testing.T) {
	l := New()
	publish(l, Plan{Span: model.Span{First: 3, Last: 9}, Objects: []model.Key{service("a", "x"), service("b", "y")},
		Spans: map[string]model.Span{"b": {First: 8, Last: 8}}}, "a", "b")
	for namespace, want := range map[string]int64{"a": 3, "b": 8} {
		if got := l.Changes(only(namespace), false)[0]; got.First != want {
			t.Errorf("%s: from %d, want %d", namespace, got.First, want)
		}
	}
	both := func(string) bool { return true }
	if got := l.Changes(both, false)[0]; got.First != 3 || got.Last != 9 {
		t.Errorf("%+v", got)
	}
	if l.Find(3, Object{}, only("a"), false).Paid {
		t.Error("a wait ends before the acknowledgement")
	}
}
