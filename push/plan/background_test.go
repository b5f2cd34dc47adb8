//go:build !race

package plan

import (
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A large change is planned in the background, host by host in each scope. Endpoints that change meanwhile reach all
// proxies at once, and the change reaches them at the end; scopes still share their common resources.
func TestFastPathPassesAPlan(t *testing.T) {
	p, _, handles := bigPlanner(t, 60, 6)
	p.backgroundFrom = 300
	before := map[*Handle]*manifest.Set{}
	for _, h := range handles {
		before[h] = h.Set()
	}
	c := p.Snapshot().Apply(2, wave(t, 50, "s5"), nil)
	p.Begin(c)
	if !p.replan.heavy {
		t.Fatal("fifty VirtualServices for six scopes are not planned in the background")
	}
	now, edits := c.New, 0
	for more := true; more; more = p.Step(func() bool { return true }) {
		edits++
		ready := 1 + edits%3
		next := now.Apply(now.Revision()+1, []model.Record{readyEndpoints(t, "ns0", "s3", ready)}, nil)
		now = next.New
		moved, rest := p.PlanEndpoints(next, false)
		if len(moved) != 6 || len(rest) != 0 || moved[0].Path != Fast {
			t.Fatalf("edit %d moved %v, and %v waits", edits, moved, rest)
		}
		for _, h := range handles {
			if got := h.Set().Types[xds.Endpoint].Get("outbound|80||s3.ns0.svc.cluster.local"); got == before[h].Types[xds.Endpoint].Get(got.Name) {
				t.Fatalf("edit %d: the endpoints of %s are as before", edits, h.Node.Namespace)
			}
			if h.Set().Types[xds.Route] != before[h].Types[xds.Route] || h.Set().Revision != 1 {
				t.Fatalf("edit %d: %s has routes of a change that is being planned", edits, h.Node.Namespace)
			}
		}
	}
	if moved := p.End(); len(moved) != 6 || moved[0].Path != Slow || edits < 6*50 {
		t.Errorf("the end moved %v after %d edits", moved, edits)
	}
	if p.PlanEndpoints(mirror.Change{New: now}, false); p.Revision() != now.Revision() {
		t.Errorf("revision %d, want %d", p.Revision(), now.Revision())
	}
	for _, h := range handles {
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", h.Node.Namespace, bad)
		}
		for _, kind := range []xds.Type{xds.Cluster, xds.Endpoint} {
			if h.Set().Types[kind][manifest.Scope] != handles[0].Set().Types[kind][manifest.Scope] {
				t.Errorf("%s and %s do not share %ss any more", h.Node.Namespace, handles[0].Node.Namespace, kind.Noun())
			}
		}
	}
}

// Endpoints of a host that an unfinished plan adds are not lost: the shadow copies of the scopes contain them, and the
// published scopes do not yet.
func TestFastPathOfHostsThatCome(t *testing.T) {
	p, _, handles := bigPlanner(t, 60, 6)
	p.backgroundFrom = 300
	coming := svc(t, "ns0/coming", "10.99.0.1", "http:80:HTTP", "raw:9000:TCP")
	c := p.Snapshot().Apply(2, append(wave(t, 50, "s5"), coming, readyEndpoints(t, "ns0", "coming", 1)), nil)
	p.Begin(c)
	if !p.replan.heavy {
		t.Fatal("fifty VirtualServices for six scopes are not planned in the background")
	}
	p.Step(func() bool { return false })
	next := c.New.Apply(3, []model.Record{readyEndpoints(t, "ns0", "coming", 3)}, nil)
	if _, rest := p.PlanEndpoints(next, false); len(rest) > 0 {
		t.Fatalf("%v waits", rest)
	}
	p.End()
	p.PlanEndpoints(mirror.Change{New: next.New}, false)
	for _, h := range handles {
		if bad := p.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", h.Node.Namespace, bad)
		}
	}
}
