package plan

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// panicsWith returns a fault: planning panics if the snapshot has a record of a kind whose body contains a text, and
// sees(scope) is true.
func panicsWith(kind model.Kind, text string, sees func(view.Scope) bool) func(*input.Input, view.Scope) {
	return func(in *input.Input, of view.Scope) {
		for r := range in.All(kind) {
			if strings.Contains(fmt.Sprint(r.Body()), text) && sees(of) {
				panic("the plan cannot take " + r.Meta().Key.String())
			}
		}
	}
}

func everybody(view.Scope) bool { return true }

// withFault runs a loop whose plans panic.
func withFault(t *testing.T, fault func(*input.Input, view.Scope), f func(t *testing.T, l *Loop, src *testSource, log *bytes.Buffer)) {
	log := &bytes.Buffer{}
	inBubble(t, Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Linger: -1}, func(t *testing.T, l *Loop, src *testSource) {
		l.fault = fault
		f(t, l, src, log)
	})
}

func joins(t *testing.T, l *Loop, namespace, name string, m *moves) *Proxy {
	t.Helper()
	var moved func(Path)
	if m != nil {
		moved = m.moved
	}
	p, err := l.Join(t.Context(), node(namespace, name), moved)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func excludedText(l *Loop) string {
	var all []string
	for _, p := range l.SetAside() {
		all = append(all, p.Error())
	}
	return strings.Join(all, "\n")
}

// A version of a record with which the plan panics is found among many and excluded by name. Its last good version
// stays, and all other edits apply, also later ones. The next version of the record is tried again.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestRecordThatPanicsIsSetAside(t *testing.T) {
	withFault(t, panicsWith(model.KindVirtualService, "poison", everybody), func(t *testing.T, l *Loop, src *testSource, log *bytes.Buffer) {
		src.put(append(shop(t), vsOf(t, "shop/v", web, "db.shop.svc.cluster.local", ""))...)
		m := &moves{}
		p := joins(t, l, "shop", "a", m)
		ofWeb := func() string {
			for _, vh := range routesOfSet(t, p.Set(), "80").GetVirtualHosts() {
				if vh.GetName() == web+":80" {
					return vh.String()
				}
			}
			return ""
		}
		before := ofWeb()
		var batch []model.Record
		for i := range 40 {
			batch = append(batch, svc(t, fmt.Sprintf("shop/new%02d", i), fmt.Sprintf("10.97.0.%d", i+1), "http:81:HTTP"), vsOf(t, fmt.Sprintf("shop/new%02d", i), fmt.Sprintf("new%02d.shop.svc.cluster.local", i), web, ""))
		}
		m.reset()
		src.put(append(batch, vsOf(t, "shop/v", web, "poison.org", ""))...)
		pass(time.Second)
		if got := excludedText(l); !strings.HasPrefix(got, "VirtualService shop/v: ") || !strings.Contains(got, "the last good version stays in effect") || strings.Count(got, "\n") != 0 {
			t.Fatalf("set aside: %s", got)
		}
		if got := ofWeb(); got != before || got == "" {
			t.Error("the last good version does not stand")
		}
		if p.Set().Types[xds.Cluster].Get("outbound|81||new39.shop.svc.cluster.local") == nil || len(m.get().at) == 0 || l.Revision() != 2 {
			t.Errorf("the other edits are not planned, or nobody is told: %v, revision %d", m.get(), l.Revision())
		}
		if text := log.String(); strings.Count(text, "a record is set aside") != 1 || strings.Count(text, "stack=") != 1 {
			t.Errorf("log:\n%s", text)
		}
		src.put(svc(t, "shop/later", "10.97.1.1", "http:81:HTTP"))
		pass(time.Second)
		if p.Set().Types[xds.Cluster].Get("outbound|81||later.shop.svc.cluster.local") == nil || excludedText(l) == "" {
			t.Error("a later edit is not planned, or the record is back")
		}
		other := joins(t, l, "other", "b", nil)
		if other.Set().Types[xds.Cluster].Get("outbound|81||later.shop.svc.cluster.local") == nil {
			t.Error("who joins later is not served")
		}
		src.put(vsOf(t, "shop/v", web, "new00.shop.svc.cluster.local", ""))
		pass(time.Second)
		if got := routesOfSet(t, p.Set(), "80").String(); excludedText(l) != "" || got == before {
			t.Errorf("the mended version is not taken: %s", excludedText(l))
		}
	})
}

// After a panic, the plan without the excluded record equals a plan from scratch, for each proxy.
func TestRescuedPlanIsFresh(t *testing.T) {
	withFault(t, panicsWith(model.KindDestinationRule, "poison", everybody), func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
		src.put(shop(t)...)
		proxies := []*Proxy{joins(t, l, "shop", "a", nil), joins(t, l, "shop", "b", nil), joins(t, l, "other", "c", nil)}
		src.put(rec(t, model.KindDestinationRule, "shop/web", "{host: "+web+", subsets: [{name: poison}]}"), vsOf(t, "shop/v", web, "db.shop.svc.cluster.local", ""))
		pass(time.Second)
		src.put(eps(t, "shop/web-1", "{name: http, number: 8080}", "10.1.0.7"))
		pass(time.Second)
		for _, p := range proxies {
			if bad := compare(p.Set(), Fresh(l.Newest(), p.View(), "")); len(bad) > 0 {
				t.Errorf("%s differs in %v", p.Node.ID, bad)
			}
			if got := addresses(t, p.Set(), "outbound|80||"+web); got != "10.1.0.7:8080" {
				t.Errorf("endpoints %s", got)
			}
		}
	})
}

// A replica that starts with such a record, and has no good version of it, serves everything else.
func TestRecordThatPanicsAtTheStart(t *testing.T) {
	withFault(t, panicsWith(model.KindVirtualService, "poison", everybody), func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
		src.put(append(shop(t), vsOf(t, "shop/v", web, "poison.org", ""))...)
		p := joins(t, l, "shop", "a", nil)
		if p.Set().Types[xds.Cluster].Get("outbound|80||"+web) == nil || !strings.Contains(excludedText(l), "VirtualService shop/v: ") || !strings.Contains(excludedText(l), "no earlier version") {
			t.Errorf("set aside: %q", excludedText(l))
		}
	})
}

// A policy that cannot be planned denies all that it selects; failing that, proxies whose plans panic are not served.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestPolicyThatPanics(t *testing.T) {
	for text, closed := range map[string]bool{"istio": true, "selector": false} {
		withFault(t, panicsWith(model.KindAuthorizationPolicy, text, everybody), func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
			policy := rec(t, model.KindAuthorizationPolicy, "shop/p", "{selector: {app: x}, istio: 'aaaa'}")
			src.put(append(shop(t), policy)...)
			_, err := l.Join(t.Context(), node("shop", "a"), nil)
			r, there := l.Newest().Get(policy.Meta().Key)
			if !there || errors.Is(err, ErrUnplannable) == closed {
				t.Fatalf("%s: what stands is %v; join: %v", text, r, err)
			}
			if spec := r.(*model.Policy).Spec; closed && (!spec.GetClosed() || spec.GetSelector()["app"] != "x" || !strings.Contains(excludedText(l), "are closed")) {
				t.Errorf("what stands is %v: %s", spec, excludedText(l))
			}
		})
	}
}

// A proxy that alone makes the plan panic causes no exclusion of records: its join is refused, or its stream ends. All
// other proxies are served.
func TestProxyThatPanicsIsAlone(t *testing.T) {
	on := true
	faulty := panicsWith(model.KindVirtualService, "db.shop", func(of view.Scope) bool { return of.Cluster == "strange" && on })
	strange := node("elsewhere", "b")
	strange.Cluster = "strange" // a value of the client's node
	withFault(t, faulty, func(t *testing.T, l *Loop, src *testSource, log *bytes.Buffer) {
		src.put(shop(t)...)
		m := &moves{}
		good := joins(t, l, "shop", "a", nil)
		bad, err := l.Join(t.Context(), strange, m.moved)
		if err != nil {
			t.Fatal(err)
		}
		m.reset()
		src.put(vsOf(t, "shop/v", web, "db.shop.svc.cluster.local", ""))
		pass(time.Second)
		if bad.Err() == nil || len(m.get().at) == 0 || good.Err() != nil {
			t.Errorf("faulty: %v, told %v; good: %v", bad.Err(), m.get(), good.Err())
		}
		if excludedText(l) != "" || !strings.Contains(routesOfSet(t, good.Set(), "80").String(), "db.shop") {
			t.Errorf("the record was taken away: %s", excludedText(l))
		}
		bad.Leave()
		for range 3 {
			if _, err := l.Join(t.Context(), strange, nil); !errors.Is(err, ErrUnplannable) {
				t.Fatalf("the faulty one joins: %v", err)
			}
		}
		st := l.Stats()
		if st.Proxies != 1 || st.Scopes != 1 || st.Workloads != 1 {
			t.Errorf("what was planned for it is left: %+v", st)
		}
		on = false
		if _, err := l.Join(t.Context(), strange, nil); err != nil {
			t.Error(err)
		}
	})
}

// Thousands of such records of one tenant cost no more than a few of them.
func TestManyRecordsThatPanic(t *testing.T) {
	plans := 0
	poison := panicsWith(model.KindVirtualService, "poison", everybody)
	withFault(t, func(in *input.Input, of view.Scope) { plans++; poison(in, of) }, func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
		src.put(shop(t)...)
		joins(t, l, "shop", "a", nil)
		var batch []model.Record
		for i := range 1000 {
			batch = append(batch, vsOf(t, fmt.Sprintf("shop/v%03d", i), fmt.Sprintf("h%03d.org", i), "poison.org", ""))
		}
		plans = 0
		src.put(append(batch, vsOf(t, "good/v", "good.org", web, ""))...)
		pass(time.Second)
		if got := len(l.SetAside()); got != 1000 || plans > 250 {
			t.Errorf("%d set aside with %d plans", got, plans)
		}
		if _, there := l.Newest().Get(model.Key{Kind: model.KindVirtualService, Namespace: "good", Name: "v"}); !there {
			t.Error("another namespace's record is set aside too")
		}
	})
}

// The loop survives a panic on each path: a large change that is planned in the background, and endpoints on the fast
// path.
func TestPanicOnEachPath(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T) []model.Record{
		"in the background": func(t *testing.T) []model.Record { return []model.Record{vsOf(t, "shop/v", web, "poison.org", "")} },
		"fast": func(t *testing.T) []model.Record {
			return []model.Record{eps(t, "shop/web-1", "{name: http, number: 8080}", "10.66.6.6")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fault := func(in *input.Input, of view.Scope) {
				panicsWith(model.KindVirtualService, "poison", everybody)(in, of)
				panicsWith(model.KindEndpoints, "10.66.6.6", everybody)(in, of)
			}
			withFault(t, fault, func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
				src.put(shop(t)...)
				p := joins(t, l, "shop", "a", nil)
				if err := l.call(t.Context(), func() { l.planner.backgroundFrom, l.turn = 0, 0 }); err != nil {
					t.Fatal(err)
				}
				before := p.Set()
				src.put(edit(t)...)
				pass(time.Second)
				if len(l.SetAside()) != 1 || len(compare(p.Set(), before)) != 0 {
					t.Errorf("set aside: %q, differs in %v", excludedText(l), compare(p.Set(), before))
				}
				src.put(svc(t, "shop/later", "10.97.1.1", "http:81:HTTP"))
				pass(time.Second)
				if p.Set().Types[xds.Cluster].Get("outbound|81||later.shop.svc.cluster.local") == nil {
					t.Error("nothing is planned any more")
				}
			})
		})
	}
}

// After an exclusion, the loop's own snapshots follow the source in all other records.
func TestExcludedFollowsTheSource(t *testing.T) {
	withFault(t, panicsWith(model.KindVirtualService, "poison", everybody), func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
		src.put(shop(t)...)
		joins(t, l, "shop", "a", nil)
		src.put(vsOf(t, "shop/v", web, "poison.org", ""))
		pass(time.Second)
		src.put(svc(t, "shop/one", "10.97.1.1", "http:81:HTTP"))
		key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "v"}
		c := src.now.Apply(src.now.Revision()+1, nil, []model.Key{key, {Kind: model.KindService, Namespace: "shop", Name: "db"}})
		src.now = c.New
		src.box.Put(c)
		pass(time.Second)
		if d := mirror.Diff(l.Newest(), src.now); len(d.Edits) != 0 || excludedText(l) != "" || l.Newest().Revision() != src.now.Revision() {
			t.Errorf("differs from the source in %v, set aside: %s", d.Edits, excludedText(l))
		}
	})
}

// A join that panics leaves the planner unchanged, whatever the step that panics.
func TestJoinThatPanics(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(shop(t)...)})
	p.Join(node("shop", "a"))
	before := p.Stats()
	for at := 1; at <= 2; at++ { // in the scope, and when all layers are planned
		calls := 0
		p.input.Fault = func(*input.Input, view.Scope) {
			if calls++; calls == at {
				panic("in a join")
			}
		}
		func() {
			defer func() { _ = recover() }()
			p.Join(node("other", "b"))
			t.Errorf("call %d does not panic", at)
		}()
		if now := p.Stats(); now != before {
			t.Errorf("call %d: %+v, was %+v", at, now, before)
		}
	}
	p.input.Fault = nil
	if h := p.Join(node("other", "b")); len(p.Check(h)) != 0 {
		t.Errorf("it joins later and differs in %v", p.Check(h))
	}
}

// A gateway keeps its private key while the planner is replaced after a panic, also if its right is being renewed and
// unused keys of its namespace are removed.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestRescuedPlanKeepsKeys(t *testing.T) {
	j, o := &judge{}, &opener{}
	inBubble(t, Config{Opener: o, Authoriser: j, Linger: -1, Logger: slog.New(slog.DiscardHandler)}, func(t *testing.T, l *Loop, src *testSource) {
		l.fault = panicsWith(model.KindVirtualService, "poison", everybody)
		src.put(append(shop(t), used(t, "web"), tlsSecret(t, "shop/web", "chain", "", "1"))...)
		m := &moves{}
		var all []*Proxy
		for _, account := range []string{"", "other"} {
			n := gateway("shop", "shop")
			if account != "" {
				n.Verified.Account, n.ID = account, account
			}
			p, err := l.Join(t.Context(), n, m.moved)
			if err != nil {
				t.Fatal(err)
			}
			p.SubscribeSecrets(t.Context(), []string{site}, nil)
			all = append(all, p)
		}
		pass(time.Second)
		before := len(o.opened)
		j.set(errors.New("away"))
		pass(6 * time.Minute) // the allowed answer is too old, and the authoriser does not answer
		src.put(vsOf(t, "shop/v", web, "poison.org", ""))
		pass(time.Second)
		if !strings.HasPrefix(excludedText(l), "VirtualService shop/v: ") {
			t.Fatalf("set aside: %q", excludedText(l))
		}
		for _, p := range all {
			if got := held(t, p.Set(), site); got != "chain, key of 1" {
				t.Errorf("%v holds %q", p.Node.Verified, got)
			}
		}
		if now := len(o.opened); now != before {
			t.Errorf("%d Secrets were opened again", now-before)
		}
	})
}
