package ledger

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/model"
)

func everywhere(string) bool { return true }

func only(namespace string) func(string) bool {
	return func(other string) bool { return other == namespace }
}

func never(int64) bool { return false }

func service(namespace, name string) model.Key {
	return model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: name}
}

// publish records a change with one stream for each namespace given, and returns their debts.
func publish(l *Ledger, p Plan, streams ...string) []*Debts {
	if p.Views == nil {
		p.Views = map[string]int{}
		for _, namespace := range streams {
			p.Views[namespace] = 1
		}
	}
	l.Begin(p)
	all := make([]*Debts, len(streams))
	for i, namespace := range streams {
		all[i] = &Debts{}
		all[i].Owe(l.Debt(namespace), time.Now())
	}
	l.Seal(p.Last)
	return all
}

// The counts of a change, the times of its acknowledgements, and what a tenant sees of both.
func TestAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := New(), time.Now()
		time.Sleep(5 * time.Millisecond)
		p := Plan{Span: model.Span{First: 3, Last: 4, Since: began}, Objects: []model.Key{service("pay", "x"), service("shop", "web")},
			Views: map[string]int{"shop": 2, "pay": 1}}
		d := publish(l, p, "shop", "shop", "shop", "shop", "pay")
		pay := func(i int, at time.Duration) {
			time.Sleep(at - time.Since(began))
			d[i].Pay(1, time.Now(), never)
		}
		pay(0, 10*time.Millisecond)
		pay(1, 20*time.Millisecond)
		pay(4, 40*time.Millisecond)
		all := l.Changes(everywhere, true)
		if len(all) != 1 || all[0].Affected != 5 || all[0].Acknowledged() != 3 || all[0].Pending() != 2 || all[0].Views != 3 {
			t.Fatalf("%+v", all)
		}
		if half, ok := all[0].Until(0.5); !ok || half < 40*time.Millisecond || half > 57*time.Millisecond {
			t.Errorf("half after %v, %v", half, ok)
		}
		if most, ok := all[0].Until(0.99); ok {
			t.Errorf("99 %% after %v, before they have", most)
		}
		pay(2, 3*time.Second)
		d[3].Leave()
		all = l.Changes(everywhere, true)
		if last, ok := all[0].Until(1); !ok || last != 3*time.Second || all[0].Gone != 1 || all[0].Pending() != 0 {
			t.Errorf("all after %v, %v: %+v", last, ok, all[0])
		}
		if half, ok := all[0].Until(0.5); !ok || half > 29*time.Millisecond {
			t.Errorf("half after %v, %v", half, ok)
		}
		pays := l.Changes(only("pay"), false)
		if len(pays) != 1 || pays[0].Affected != 1 || pays[0].Views != 1 || len(pays[0].Objects) != 1 ||
			pays[0].Objects[0] != "VirtualService pay/x" {
			t.Errorf("a tenant sees %+v", pays)
		}
		if others := l.Changes(only("other"), false); len(others) != 0 {
			t.Errorf("a tenant without a part sees %+v", others)
		}
	})
}

// A client that refuses a version of the change does not acknowledge it; a refusal of an older one does not count.
func TestRefusals(t *testing.T) {
	l := New()
	d := publish(l, Plan{Span: model.Span{First: 7, Last: 7}}, "shop", "shop")
	for i, refused := range []int64{7, 6} {
		d[i].Pay(1, time.Now(), func(since int64) bool { return refused >= since })
	}
	if c := l.Changes(everywhere, true)[0]; c.Refused != 1 || c.Acknowledged() != 1 {
		t.Errorf("%+v", c)
	}
}

// A change is not acknowledged before all of its streams are notified, even if those that are have acknowledged it.
func TestNothingIsPaidBeforeItIsSealed(t *testing.T) {
	l := New()
	l.Begin(Plan{Span: model.Span{First: 2, Last: 2}, Views: map[string]int{"shop": 2}})
	var first Debts
	first.Owe(l.Debt("shop"), time.Now())
	first.Pay(1, time.Now(), never)
	if l.Find(2, Object{}, everywhere, true).Paid {
		t.Error("paid while streams are being notified")
	}
	changed := l.Changed()
	l.Seal(2)
	if !l.Find(2, Object{}, everywhere, true).Paid || l.Notified() != 2 {
		t.Error("not paid afterwards")
	}
	select {
	case <-changed:
	default:
		t.Error("those who wait are not notified")
	}
	if l.Debt("shop") != nil {
		t.Error("a debt without a publication")
	}
}

// A wait for an object is for its newest change alone; a wait for a revision is for everything up to it.
func TestFind(t *testing.T) {
	l := New()
	stuck := publish(l, Plan{Span: model.Span{First: 1, Last: 1}, Objects: []model.Key{service("pay", "old")}}, "pay")
	web := publish(l, Plan{Span: model.Span{First: 2, Last: 4}, Objects: []model.Key{service("shop", "web")}}, "shop")
	publish(l, Plan{Span: model.Span{First: 6, Last: 6}, Objects: []model.Key{service("shop", "later")}}, "shop")
	isWeb := Object{"shop", func(k model.Key) bool { return k == service("shop", "web") }}
	if got := l.Find(5, isWeb, everywhere, true); !got.Exact || got.Paid || got.Counts.Affected != 1 {
		t.Errorf("%+v", got)
	}
	changed := l.Changed()
	web[0].Pay(1, time.Now(), never)
	select {
	case <-changed:
	default:
		t.Error("those who wait are not notified of the last acknowledgement")
	}
	if got := l.Find(5, isWeb, everywhere, true); !got.Paid {
		t.Errorf("it waits for others: %+v", got)
	}
	got := l.Find(4, Object{}, everywhere, true)
	if got.Exact || got.Paid || got.Counts.Affected != 1 || got.Counts.Acknowledged() != 1 {
		t.Errorf("revision 4: %+v", got)
	}
	if _, owes := stuck[0].Owes(got.Of); !owes {
		t.Error("the proxy that delays it is not found")
	}
	if !l.Find(4, Object{}, only("shop"), false).Paid {
		t.Error("a tenant waits for another one")
	}
	stuck[0].Leave()
	if !l.Find(4, Object{}, everywhere, true).Paid {
		t.Error("it waits for a stream that has ended")
	}
	if none := l.Find(4, Object{"shop", func(model.Key) bool { return false }}, everywhere, true); none.Exact || none.Changes != nil ||
		none.Counts.Affected != 0 || !none.Paid {
		t.Errorf("the change of another object counts: %+v", none)
	}
}

// A change that has more objects than it lists may contain any object of its namespace: an older change that lists
// the object is not taken for the newest one.
func TestFindUnlisted(t *testing.T) {
	l := New()
	publish(l, Plan{Span: model.Span{First: 1, Last: 1}, Objects: []model.Key{service("shop", "web"), service("pay", "web")}})
	var many []model.Key
	for i := range maxObjects + 1 {
		many = append(many, service("shop", strconv.Itoa(i)))
	}
	stuck := publish(l, Plan{Span: model.Span{First: 2, Last: 2}, Objects: many}, "shop")
	is := func(namespace string) Object {
		return Object{namespace, func(k model.Key) bool { return k == service(namespace, "web") }}
	}
	got := l.Find(2, is("shop"), everywhere, true)
	if got.Exact || got.Paid || len(got.Changes) != 1 || got.Changes[0].First != 2 || got.Changes[0].More != 1 {
		t.Errorf("an object of the namespace: %+v", got)
	}
	if _, owes := stuck[0].Owes(got.Of); !owes {
		t.Error("the proxy that delays it is not found")
	}
	if got := l.Find(2, is("pay"), everywhere, true); !got.Exact || !got.Paid || got.Changes[0].First != 1 {
		t.Errorf("an object of another namespace: %+v", got)
	}
}

// Changes and debts stay within their bounds, and endpoints do not displace configuration.
func TestBounds(t *testing.T) {
	l := New()
	publish(l, Plan{Span: model.Span{First: 1, Last: 1}, Objects: []model.Key{service("shop", "first")}}, "shop")
	var objects []model.Key
	for i := range 500 {
		objects = append(objects, service(fmt.Sprintf("n%03d", i%100), fmt.Sprint(i/100)), service("one", fmt.Sprint(i)))
	}
	var stuck Debts
	for i := range int64(3 * maxDebts) {
		l.Begin(Plan{Lane: Endpoints, Span: model.Span{First: i + 2, Last: i + 2}, Views: map[string]int{"shop": 1}, Objects: objects})
		stuck.Owe(l.Debt("shop"), time.Now())
		l.Seal(i + 2)
	}
	all := l.Changes(everywhere, true)
	if len(all) > maxChanges+1 || all[len(all)-1].First != 1 {
		t.Errorf("%d changes, the last %+v", len(all), all[len(all)-1])
	}
	if l.lanes[Endpoints].bytes > maxBytes || len(all[0].Objects) > maxSpaces*maxObjects {
		t.Errorf("%d bytes, %d objects", l.lanes[Endpoints].bytes, len(all[0].Objects))
	}
	if listed := len(all[0].Objects) + all[0].More; listed != len(objects) || stuck.Len() > maxDebts {
		t.Errorf("%d of %d objects, %d debts", listed, len(objects), stuck.Len())
	}
	stuck.Leave()
	d := publish(l, Plan{Lane: Endpoints, Span: model.Span{First: 9999, Last: 9999}})
	if len(d) != 0 || len(l.Changes(everywhere, true)) != len(all) {
		t.Error("endpoints that change no proxy are recorded")
	}
	publish(l, Plan{Span: model.Span{First: 1, Last: 1}}) // as after a restore of etcd, and without any view
	publish(l, Plan{Lane: Endpoints, Span: model.Span{First: 1, Last: 1}}, "shop")
	if got := l.Changes(everywhere, true); len(got) != 3 {
		t.Errorf("%d changes after the revisions began again", len(got))
	}
}

// A stream that has ended takes no debts.
func TestLeft(t *testing.T) {
	l, d := New(), Debts{}
	d.Leave()
	l.Begin(Plan{Span: model.Span{First: 1, Last: 1}, Views: map[string]int{"shop": 1}})
	d.Owe(l.Debt("shop"), time.Now())
	l.Seal(1)
	if c := l.Changes(everywhere, true)[0]; c.Affected != 0 || !l.Find(1, Object{}, everywhere, true).Paid {
		t.Errorf("%+v", c)
	}
}

// BenchmarkEndpoints measures the ledger's work for one change of endpoints that 1,000 streams of one view receive and
// acknowledge.
func BenchmarkEndpoints(b *testing.B) {
	l, streams, now := New(), make([]Debts, 1000), time.Now()
	plan := Plan{Lane: Endpoints, Span: model.Span{Since: now}, Objects: []model.Key{service("shop", "web")},
		Views: map[string]int{"shop": 1}}
	b.ReportAllocs()
	for b.Loop() {
		plan.First++
		plan.Last++
		l.Begin(plan)
		for i := range streams {
			streams[i].Owe(l.Debt("shop"), now)
		}
		l.Seal(plan.Last)
		for i := range streams {
			streams[i].Pay(streams[i].Len(), now, never)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/stream")
}

// Each tenant's delivery is reported once, when its own clients are done, whatever those of others do. A change that is
// evicted is reported as it is then; endpoints are not reported.
func TestDeliveriesOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := New(), time.Now()
		var got []Delivery
		l.Report(func(namespace string) string { return namespace[:1] }, func(d Delivery) { got = append(got, d) })
		p := Plan{Span: model.Span{First: 1, Last: 1, Since: began}, Views: map[string]int{"a1": 1, "a2": 1, "b": 1, "c": 1}}
		d := publish(l, p, "a1", "a2", "b", "b", "b")
		time.Sleep(10 * time.Millisecond)
		d[0].Pay(1, time.Now(), never)
		d[2].Pay(1, time.Now(), func(int64) bool { return true })
		d[3].Leave()
		if len(got) != 0 {
			t.Errorf("reported before the last client: %+v", got)
		}
		time.Sleep(10 * time.Millisecond)
		d[1].Pay(1, time.Now(), never)
		if want := (Delivery{Tenant: "a", Acknowledged: 2, Most: 20 * time.Millisecond}); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		publish(l, Plan{Lane: Endpoints, Span: model.Span{First: 2, Last: 2}}, "a1")[0].Leave()
		for i := range int64(maxChanges) {
			publish(l, Plan{Span: model.Span{First: i + 2, Last: i + 2}})
		}
		if want := (Delivery{Tenant: "b", Refused: 1, Gone: 1, Pending: 1}); len(got) != 2 || got[1] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		d[4].Pay(1, time.Now(), never)
		if len(got) != 2 {
			t.Errorf("reported twice: %+v", got)
		}
	})
}
