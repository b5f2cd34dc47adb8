package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// manyEndpoints returns one slice of a service; another version has other addresses.
func manyEndpoints(t testing.TB, namespace, service string, slice, version int) model.Record {
	t.Helper()
	spec := &model.EndpointsSpec{Hosts: []string{service + "." + namespace + ".svc.cluster.local"}, Ports: []*model.EndpointPort{{Name: "http", Number: 8080}}}
	for i := range largeHost / 2 {
		spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", 10*slice+version, i/250, i%250+1), Namespace: namespace})
	}
	r, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: namespace, Name: fmt.Sprintf("%s-%d", service, slice)}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Edits of a host with very many endpoints are planned at most once a second, the newest of each record, whatever their
// number. Edits of other hosts are planned at once, and at the end all edits are planned.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestLargeHostIsPaced(t *testing.T) {
	plans := map[Path]int{}
	inBubble(t, Config{Planned: func(_ int64, path Path, _ time.Time, edits, _ int) {
		if edits > 0 {
			plans[path]++
		}
	}}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(append(shop(t), svc(t, "pay/bank", "10.96.1.1", "http:80:HTTP"), manyEndpoints(t, "pay", "bank", 0, 0), manyEndpoints(t, "pay", "bank", 1, 0))...)
		var m moves
		p, err := l.Join(t.Context(), node("shop", "a"), m.moved)
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		clear(plans)
		m.reset()
		for i := range 60 { // for five seconds
			src.put(manyEndpoints(t, "pay", "bank", i%2, 1+i%5))
			src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", fmt.Sprintf("10.1.1.%d", i+1)))
			pass(83 * time.Millisecond)
		}
		if got := maps.Clone(plans); got[Slow] < 4 || got[Slow] > 6 || got[Fast] != 60 {
			t.Errorf("%d plans of a large host in five seconds, %d of another", got[Slow], got[Fast])
		}
		if paths := m.get().paths; slices.Contains(paths[:3], Slow) && len(paths) < 60 {
			t.Errorf("moved %v", paths)
		}
		if got := addresses(t, p.Set(), "outbound|80||"+web); got != "10.1.1.60:8080" {
			t.Errorf("another host: %s", got)
		}
		pass(2 * time.Second)
		if bad := l.planner.Check(p.Handle); len(bad) > 0 || l.Newest() != src.now {
			t.Errorf("in the end %v", bad)
		}
	})
}

// Waiting edits are planned in turn by namespace, and within a namespace by host; an edit that is undone is removed.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestPaceTakesTurns(t *testing.T) {
	var p pace
	now := time.Unix(100, 0)
	edit := func(namespace, service string, version int) mirror.Edit {
		return mirror.Edit{New: manyEndpoints(t, namespace, service, 0, version)}
	}
	many := snapshot(slices.Concat(bothSlices(t, "evil", "a"), bothSlices(t, "evil", "b"), bothSlices(t, "evil", "c"), bothSlices(t, "pay", "bank"))...)
	through := func(edits ...mirror.Edit) (all []string) {
		for _, e := range p.admit(edits, many, many, now) {
			all = append(all, fmt.Sprintf("%s/%s", e.Key().Namespace, e.Key().Name))
		}
		return all
	}
	if got := through(edit("evil", "a", 1), edit("evil", "b", 1), edit("evil", "c", 1), edit("pay", "bank", 1)); fmt.Sprint(got) != "[evil/a-0]" {
		t.Errorf("at first %v", got)
	}
	if got := through(edit("evil", "a", 2), edit("evil", "small", 1)); fmt.Sprint(got) != "[evil/small-0]" {
		t.Errorf("then %v", got)
	}
	var order []string
	for range 12 {
		wait := p.due(now)
		if now = now.Add(wait); wait > pacePerHost {
			break
		}
		for _, e := range p.next(now) {
			order = append(order, fmt.Sprint(e.Key().Namespace, "/", e.Key().Name, " ", wait))
		}
	}
	if fmt.Sprint(order) != "[pay/bank-0 250ms evil/b-0 250ms evil/c-0 250ms evil/a-0 250ms]" {
		t.Errorf("in turns %v", order)
	}
	if len(p.held)+len(p.spaces) > 0 || p.due(now) != time.Hour {
		t.Errorf("%+v is left", p)
	}
}

func bothSlices(t testing.TB, namespace, service string) []model.Record {
	return []model.Record{manyEndpoints(t, namespace, service, 0, 0), manyEndpoints(t, namespace, service, 1, 0)}
}

// A slice that is added and removed again while it waits is not planned.
func TestPaceForgetsWhatCameAndWent(t *testing.T) {
	var p pace
	now := time.Unix(100, 0)
	many := snapshot(bothSlices(t, "pay", "bank")...)
	p.at = now
	third := manyEndpoints(t, "pay", "bank", 2, 0)
	with := snapshot(append(bothSlices(t, "pay", "bank"), third)...)
	if got := p.admit([]mirror.Edit{{New: third}}, many, with, now); len(got) != 0 {
		t.Fatalf("at first %v", got)
	}
	for _, e := range p.admit([]mirror.Edit{{Old: third}}, many, many, now) {
		t.Errorf("then %v", e)
	}
	for range 3 {
		now = now.Add(2 * time.Second)
		for _, e := range p.next(now) {
			t.Errorf("in its turn %v", e.Key())
		}
	}
	if len(p.held)+len(p.spaces) > 0 {
		t.Errorf("%+v is left", p)
	}
}

// Endpoints that one namespace states for a host of another do not make that host wait, and an edit that replaces a
// record is counted once.
func TestPaceCountsItsOwn(t *testing.T) {
	var p pace
	now := time.Unix(100, 0)
	p.at = now
	spec := &model.EndpointsSpec{Hosts: []string{"bank.pay.svc.cluster.local"}, Ports: []*model.EndpointPort{{Name: "http", Number: 8080}}, Endpoints: []*model.Endpoint{{Address: "10.0.0.1", Namespace: "pay"}}}
	few, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: "pay", Name: "bank-1"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	big := manyEndpoints(t, "evil", "x", 0, 0).(*model.Endpoints).Spec
	big.Hosts = []string{"bank.pay.svc.cluster.local"}
	big.Endpoints = append(big.Endpoints, big.Endpoints...)
	evil, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: "evil", Name: model.ServiceEntryPrefix + "e"}, 0, big)
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot(few, evil)
	if got := p.admit([]mirror.Edit{{Old: few, New: few}}, s, s, now); len(got) != 1 {
		t.Error("a host that another namespace states 2,000 endpoints for waits")
	}
	half := manyEndpoints(t, "pay", "shop", 0, 0)
	s = snapshot(half)
	if got := p.admit([]mirror.Edit{{Old: half, New: half}}, s, s, now); len(got) != 1 {
		t.Error("a host of 1,000 waits")
	}
}

// The merged edit of a waiting record has the revisions of all batches that wrote the record. They are unknown if those
// of one batch are.
func TestPaceMergesRevisions(t *testing.T) {
	five, eight := &model.Span{First: 5, Last: 5}, &model.Span{First: 8, Last: 8}
	s := snapshot(bothSlices(t, "pay", "bank")...)
	version := func(n int) model.Record { return manyEndpoints(t, "pay", "bank", 0, n) }
	old, middle, last := version(0), version(1), version(2)
	for _, c := range []struct{ first, second, want *model.Span }{
		{five, eight, &model.Span{First: 5, Last: 8}},
		{nil, eight, nil},
		{five, nil, nil},
	} {
		p := pace{at: time.Unix(100, 0)}
		for _, e := range []mirror.Edit{{Old: old, New: middle, In: c.first}, {Old: middle, New: last, In: c.second}} {
			if got := p.admit([]mirror.Edit{e}, s, s, p.at); len(got) > 0 {
				t.Fatalf("at once %v", got)
			}
		}
		got := p.next(p.at.Add(time.Minute))
		if want := []mirror.Edit{{Old: old, New: last, In: c.want}}; !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
