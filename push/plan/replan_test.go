package plan

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// wave returns VirtualServices of n hosts that all route to another host.
func wave(t testing.TB, n int, to string) (all []model.Record) {
	for i := range n {
		h := fmt.Sprintf("s%d.ns%d.svc.cluster.local", i, i/10)
		all = append(all, vsOf(t, fmt.Sprintf("ns%d/s%d", i/10, i), h, to+".ns0.svc.cluster.local", ""))
	}
	return all
}

// Endpoints whose ports are named by a service that is not planned yet wait for the service, since the ports of the
// service's previous version would leave no endpoints.
func TestEndpointsWaitForTheirService(t *testing.T) {
	const name = "outbound|80||web.b.svc.cluster.local"
	p := New(Settings{Snapshot: snapshot(svc(t, "b/web", "10.96.0.1", "http:80:HTTP"), eps(t, "b/web-1", "{name: http, number: 8080}", "10.1.0.1"))})
	h := p.Join(node("a", "x"))
	before := h.Set().Types[xds.Endpoint].Get(name)
	c := p.Snapshot().Apply(2, []model.Record{svc(t, "b/web", "10.96.0.1", "web:80:HTTP"), eps(t, "b/web-1", "{name: web, number: 8080}", "10.1.0.1")}, nil)
	moved, rest := p.PlanEndpoints(c, false)
	if len(moved) > 0 || len(rest) != 2 || h.Set().Types[xds.Endpoint].Get(name) != before {
		t.Errorf("the fast path moved %v and left %v", moved, rest)
	}
	p.Apply(mirror.Change{New: c.New, Edits: rest})
	if bad := p.Check(h); len(bad) > 0 || h.Set().Types[xds.Endpoint].Get(name) != before {
		t.Errorf("with the service: %v, or other endpoints", bad)
	}
}

// A small change is planned without shadow copies, because the copies of the scopes would cost more than the change.
func TestSmallChangeNeedsNoShadow(t *testing.T) {
	p, _, handles := bigPlanner(t, 60, 6)
	was := handles[0].planned.Load().scope.hosts
	p.Begin(p.Snapshot().Apply(2, wave(t, 2, "s5"), nil))
	if p.replan.heavy {
		t.Error("two VirtualServices are planned in the background")
	}
	p.End()
	if handles[0].planned.Load().scope.hosts != was {
		t.Error("the scope was copied")
	}
}

// While the loop plans a change in several turns, it publishes endpoints between the turns, and it reports the revision
// when all is planned.
func TestLoopTakesTurns(t *testing.T) {
	src := newTestSource()
	var paths []Path
	l, err := NewLoop(Config{Source: src, DebounceAfter: 1, Coalesce: 1, Planned: func(_ int64, path Path, _ time.Time, _, _ int) { paths = append(paths, path) }})
	if err != nil {
		t.Fatal(err)
	}
	src.now = bigMesh(t, 60)
	src.box.Put(mirror.Change{Old: mirror.Empty(), New: src.now})
	l.applyNewest(src.box)
	l.planner.backgroundFrom, l.turn = 0, 0
	var handles []*Handle
	for i := range 6 {
		handles = append(handles, l.planner.Join(node(fmt.Sprintf("ns%d", i), "a")))
	}
	src.put(wave(t, 50, "s5")...)
	l.applyNewest(src.box)
	l.plan(time.Now())
	if l.inProgress == nil {
		t.Fatal("the plan took one turn")
	}
	src.put(readyEndpoints(t, "ns0", "s3", 1))
	l.applyNewest(src.box)
	if wait := l.plan(time.Now()); wait != 0 || l.inProgress == nil {
		t.Fatalf("it waits %v in the middle of a plan", wait)
	}
	for _, h := range handles {
		if got := addresses(t, h.Set(), "outbound|80||s3.ns0.svc.cluster.local"); got != "10.200.0.0:8080" || h.Set().Revision != 1 {
			t.Errorf("%s has endpoints %s at revision %d while configuration is planned", h.Node.Namespace, got, h.Set().Revision)
		}
	}
	for l.inProgress != nil {
		l.plan(time.Now())
	}
	if l.Revision() != 2 {
		t.Errorf("revision %d of what was planned, want 2", l.Revision())
	}
	if l.plan(time.Now()); l.Revision() != 3 {
		t.Errorf("revision %d of all that is planned, want 3", l.Revision())
	}
	if fmt.Sprint(paths) != fmt.Sprint([]Path{Fast, Slow, Fast}) {
		t.Errorf("planned on the paths %v", paths)
	}
	for _, h := range handles {
		if bad := l.planner.Check(h); len(bad) > 0 {
			t.Errorf("%s: %v", h.Node.Namespace, bad)
		}
	}
}

// Changes that arrive while configuration is planned in turns are planned next, without another event.
func TestLoopGoesOnAfterItsTurns(t *testing.T) {
	for name, late := range map[string]model.Record{"configuration": svc(t, "ns0/s3", "10.0.3.1", "http:80:HTTP"), "endpoints": readyEndpoints(t, "ns0", "s3", 1)} {
		t.Run(name, func(t *testing.T) {
			src := newTestSource()
			l, err := NewLoop(Config{Source: src, DebounceAfter: 1, Coalesce: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			src.now = bigMesh(t, 60)
			src.box.Put(mirror.Change{Old: mirror.Empty(), New: src.now})
			l.applyNewest(src.box)
			l.planner.backgroundFrom, l.turn = 0, 0
			for i := range 6 {
				l.planner.Join(node(fmt.Sprintf("ns%d", i), "a"))
			}
			src.put(wave(t, 50, "s5")...)
			l.applyNewest(src.box)
			now := time.Now()
			if l.plan(now); l.inProgress == nil {
				t.Fatal("the plan took one turn")
			}
			src.put(late)
			l.applyNewest(src.box)
			for i := 0; l.Revision() < 3; i++ { // as Run does
				wait := l.plan(now)
				if now = now.Add(wait); l.Revision() < 3 && wait > time.Minute || i > 10_000 {
					t.Fatalf("it waits %v, and %d edits of configuration wait, endpoints: %v", wait, l.pending.Len(), l.endpoints.waits)
				}
			}
		})
	}
}

// Proxies that join and leave, and requests to the planner, see either the state before a plan or the one after it.
func TestNobodySeesHalfAPlan(t *testing.T) {
	inBubble(t, Config{Linger: -1, DebounceAfter: 40 * time.Millisecond}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(wave(t, 60, "s1")...)
		pass(time.Second)
		if err := l.call(t.Context(), func() { l.planner.backgroundFrom, l.turn = 0, 0 }); err != nil {
			t.Fatal(err)
		}
		var stay *Proxy
		for i := range 4 {
			var err error
			if stay, err = l.Join(t.Context(), node(fmt.Sprintf("ns%d", i), "stay"), nil); err != nil {
				t.Fatal(err)
			}
		}
		var guests sync.WaitGroup
		for g := range 3 {
			guests.Go(func() {
				for i := range 40 {
					p, err := l.Join(context.Background(), node(fmt.Sprintf("ns%d", (g+i)%7), "guest"), func(Path) {})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(20 * time.Millisecond)
					p.Leave()
				}
			})
		}
		guests.Go(func() {
			for range 180 {
				if err := l.call(context.Background(), func() {
					if l.inProgress != nil || l.planner.replan != nil {
						t.Error("somebody is served in the middle of a plan")
					}
				}); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		for i := range 60 {
			src.put(wave(t, 40, fmt.Sprintf("s%d", i%9))...)
			src.put(svc(t, "ns0/s3", "10.0.3.1", "http:80:HTTP"), readyEndpoints(t, "ns0", "s3", 1+i%4))
			time.Sleep(30 * time.Millisecond)
		}
		guests.Wait()
		pass(time.Minute)
		if err := l.call(t.Context(), func() {
			if bad := l.planner.Check(stay.Handle); len(bad) > 0 {
				t.Error(bad)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if got := l.Revision(); got != src.now.Revision() {
			t.Errorf("revision %d is planned, want %d", got, src.now.Revision())
		}
	})
}

// Calls in a wrong order panic with a message: a second change before the end of the first, Step and End without a
// change, calls after Drop, and calls for single proxies while a change is planned.
func TestPlannerRefusesCallsOutOfOrder(t *testing.T) {
	small := func(p *Planner) mirror.Change { return p.Snapshot().Apply(2, wave(t, 2, "s5"), nil) }
	never := func() bool { return false }
	for want, call := range map[string]func(p *Planner){
		"plan: Planner.Begin before the End of another change":    func(p *Planner) { p.Begin(small(p)); p.Begin(small(p)) },
		"plan: Planner.End without a Begin":                       func(p *Planner) { p.Apply(small(p)); p.End() },
		"plan: Planner.Step without a Begin":                      func(p *Planner) { p.Step(never) },
		"plan: Planner.Step of a join before the End of a change": func(p *Planner) { j := p.BeginJoin(node("ns0", "late")); p.Begin(small(p)); j.Step(never) },
		"plan: Planner.End of a join before its last Step": func(p *Planner) {
			j := p.BeginJoin(node("ns7", "late"))
			for j.Step(func() bool { return true }) {
			}
			p.Apply(small(p)) // the join must be planned after it
			j.End()
		},
		"plan: Planner.Begin after Drop":                            func(p *Planner) { p.Drop(); p.Begin(small(p)) },
		"plan: Planner.End after Drop":                              func(p *Planner) { p.Begin(small(p)); p.Drop(); p.End() },
		"plan: Planner.PlanEndpoints after Drop":                    func(p *Planner) { p.Drop(); p.Drop(); p.PlanEndpoints(mirror.Change{New: p.Snapshot()}, false) },
		"plan: Planner.Join before the End of a change":             func(p *Planner) { p.Begin(small(p)); p.Join(node("ns0", "late")) },
		"plan: Planner.Leave before the End of a change":            func(p *Planner) { h := p.Join(node("ns0", "b")); p.Begin(small(p)); p.Leave(h) },
		"plan: Planner.SubscribeSecrets before the End of a change": func(p *Planner) { h := p.Join(node("ns0", "b")); p.Begin(small(p)); p.SubscribeSecrets(h, nil, nil) },
		"plan: Planner.AskNames before the End of a change":         func(p *Planner) { h := p.Join(node("ns0", "b")); p.Begin(small(p)); p.AskNames(h) },
		"plan: Planner.Authorised before the End of a change":       func(p *Planner) { p.Begin(small(p)); p.Authorised(view.Identity{}, access.Standing{}) },
		"plan: Planner.Opened before the End of a change":           func(p *Planner) { p.Begin(small(p)); p.Opened(&model.Secret{}, nil) },
		"plan: Planner.Join after Drop":                             func(p *Planner) { p.Drop(); p.Join(node("ns0", "late")) },
		"plan: Planner.Step after Drop": func(p *Planner) {
			p.backgroundFrom = 0
			p.Begin(small(p))
			p.Drop()
			p.Step(never)
		},
	} {
		p, _, _ := bigPlanner(t, 10, 2)
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("it panics with %v, want %q", got, want)
				}
			}()
			call(p)
		}()
	}
}

// wide reports whether a change affects many hosts of many scopes. It has its own formula, so that recorded histories
// (strikes) stay valid when weights change.
func (d *randomRun) wide() bool {
	rp, scopes := d.planner.replan, 0
	for key := range d.planner.scopes {
		if !rp.fromScratch(key) {
			scopes++
		}
	}
	return scopes*(len(rp.hosts)+len(rp.members)+len(rp.pulls)+100*(len(rp.patterns)+len(rp.reporting))) >= 1000
}
