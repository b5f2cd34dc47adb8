//go:build !race

package plan

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// heap returns the number of live bytes. Cleanups of weak tables release more memory while the collector runs, so heap
// collects until the number stops falling.
func heap() int64 {
	least := int64(math.MaxInt64)
	for same := 0; same < 3; same++ {
		done := make(chan struct{})
		runtime.AddCleanup(&struct{ pointer *int }{new(int)}, func(done chan struct{}) { close(done) }, done)
		runtime.GC()
		<-done // the cleanups have run
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); int64(m.HeapAlloc) < least-1<<10 {
			least, same = int64(m.HeapAlloc), 0
		}
	}
	return least
}

// BenchmarkScope plans the outbound side of a namespace when all resources are in the pool: of the first scope, and of
// one more that differs from it only in the namespace. retained-B is the memory that one more scope uses.
func BenchmarkScope(b *testing.B) {
	for _, services := range []int{500, 1000, 4000} {
		b.Run(fmt.Sprintf("first/services=%d", services), func(b *testing.B) {
			p, _, _ := bigPlanner(b, services, 1)
			b.ReportAllocs()
			for b.Loop() {
				newScope(p.input, p.Join(node("ns0", "a")).View().Scope, nil)
			}
		})
		b.Run(fmt.Sprintf("further/services=%d", services), func(b *testing.B) {
			p, _, _ := bigPlanner(b, services, 40)
			b.ReportAllocs()
			for b.Loop() {
				p.Leave(p.Join(node("ns45", "a")))
			}
			b.StopTimer()
			before := heap()
			var more []*Handle
			for i := range 5 {
				more = append(more, p.Join(node(fmt.Sprintf("ns%d", 41+i), "a")))
			}
			b.ReportMetric(float64(heap()-before)/5, "retained-B")
			runtime.KeepAlive(more)
			runtime.KeepAlive(p)
		})
	}
}

// At any point of a random history a scope that is cloned from a template equals one that is planned from scratch, and
// cloning does not change the template.
func TestClonedScopeEqualsPlanned(t *testing.T) {
	const runs = 2
	seeds := max(runs, *histories/3)
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			clones := 0
			for seed := run; seed < seeds; seed += runs {
				d := newRandomRun(t, 5000+uint64(seed), &affects).withApps()
				for i := range 60 {
					d.step(i)
					d.drain()
					for _, s := range d.planner.scopes {
						clones += templateOf(t, d.planner, s, fmt.Sprintf("seed %d step %d", seed, i))
					}
				}
			}
			if clones < seeds/runs*20 {
				t.Errorf("%d clones only", clones)
			}
		})
	}
}

// templateOf clones the scope for every namespace for which it may be cloned, checks each clone, and returns their
// number.
func templateOf(t *testing.T, p *Planner, s *scope, at string) (clones int) {
	t.Helper()
	before := digest(s)
	for _, namespace := range []string{"a", "b", "c", "istio-system"} {
		key := s.key
		if key.Namespace = namespace; namespace == s.key.Namespace || !s.isTemplateFor(key) {
			continue
		}
		between := p.between(p.input, s.key, key)
		if between.everything {
			continue
		}
		clones++
		cloned := s.clone(p.input, key, between, nil)
		if diff := cmp.Diff(digest(newScope(p.input, key, nil)), digest(cloned)); diff != "" {
			t.Fatalf("%s: %v cloned from %s: (- from scratch, + cloned)\n%s", at, key, s.key.Namespace, diff)
		}
	}
	if clones > 0 {
		if diff := cmp.Diff(before, digest(s)); diff != "" {
			t.Fatalf("%s: cloning changed %v:\n%s", at, s.key, diff)
		}
	}
	return clones
}

// For each way in which a namespace affects a plan: each of two scopes that differ in it is cloned from the other.
func TestNamespaceDecides(t *testing.T) {
	web := svc(t, "a/web", "10.96.0.1", "http:80:HTTP", "raw:9000:TCP", "tls:443:TLS")
	host := "web.a.svc.cluster.local"
	vs := func(name, body string) model.Record {
		return rec(t, model.KindVirtualService, name, "hosts: ["+host+"]\n"+body)
	}
	to := "route: [{destination: {host: other.b.svc.cluster.local}}]"
	for name, records := range map[string][]model.Record{
		"short names":                      {web},
		"short names without a service":    {rec(t, model.KindVirtualService, "c/x", "hosts: [gone.a.svc.cluster.local]\nhttp: [{"+to+"}]")},
		"a service for its namespace":      {rec(t, model.KindServiceEntry, "b/e", "{hosts: [e.example.com], exportTo: ['.'], ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}")},
		"a service for others":             {rec(t, model.KindServiceEntry, "c/e", "{hosts: [e.example.com], exportTo: [b], ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}")},
		"the own service goes first":       {web, rec(t, model.KindServiceEntry, "b/e", "{hosts: ["+host+"], exportTo: ['*'], ports: [{name: http, number: 81, protocol: PROTOCOL_HTTP}]}")},
		"the own rule goes first":          {web, rec(t, model.KindDestinationRule, "b/r", "{host: "+host+", exportTo: ['*'], trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}")},
		"a rule for others":                {web, rec(t, model.KindDestinationRule, "a/r", "{host: "+host+", exportTo: [b], trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}")},
		"a rule for whom the mesh says":    {web, meshOf(t, "defaultDestinationRuleExportTo: [b]"), rec(t, model.KindDestinationRule, "a/r", "{host: "+host+", subsets: [{name: v1}]}")},
		"a wildcard rule of the namespace": {web, rec(t, model.KindDestinationRule, "b/r", "{host: '*.local', exportTo: ['*'], subsets: [{name: v1}]}")},
		"routes for others":                {web, vs("c/v", "exportTo: [b]\nhttp: [{"+to+"}]")},
		"routes for whom the mesh says":    {web, meshOf(t, "defaultVirtualServiceExportTo: [b]"), vs("c/v", "http: [{"+to+"}]")},
		"sourceNamespace of http":          {web, vs("c/v", "exportTo: ['*']\nhttp: [{match: [{sourceNamespace: b}], "+to+"}]")},
		"sourceNamespace of tcp":           {web, vs("c/v", "exportTo: ['*']\ntcp: [{match: [{sourceNamespace: b}], "+to+"}]")},
		"sourceNamespace of tls":           {web, vs("c/v", "exportTo: ['*']\ntls: [{match: [{sniHosts: ["+host+"], sourceNamespace: b}], "+to+"}]")},
	} {
		p := New(Settings{Snapshot: snapshot(records...)})
		for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "z"}, {"z", "b"}} {
			of := p.Join(node(pair[0], "x"))
			cloned := p.Join(node(pair[1], "x"))
			if diff := cmp.Diff(digest(newScope(p.input, cloned.View().Scope, nil)), digest(cloned.planned.Load().scope)); diff != "" {
				t.Errorf("%s: %s cloned from %s: (- from scratch, + cloned)\n%s", name, pair[1], pair[0], diff)
			}
			p.Leave(of)
			p.Leave(cloned)
		}
	}
}

// A scope is planned from scratch if the edit is of a record that its key names: its Sidecar, a Gateway, an
// EnvoyFilter.
func TestScopeReadsWhatItNames(t *testing.T) {
	var gateways intern.Table[model.Key]
	var filters intern.Table[view.Patch]
	key := func(kind model.Kind) model.Key { return model.Key{Kind: kind, Namespace: "shop", Name: "x"} }
	scope := view.Scope{Sidecar: key(model.KindSidecar), Gateways: gateways.List(key(model.KindGateway)), Filters: filters.List(view.Patch{Filter: key(model.KindEnvoyFilter)})}
	for kind, want := range map[model.Kind]bool{model.KindSidecar: true, model.KindGateway: true, model.KindEnvoyFilter: true, model.KindService: false} {
		if got := readsAny(scope, map[model.Key]bool{key(kind): true}); got != want {
			t.Errorf("%v: %v", kind, got)
		}
	}
}

func meshOf(t *testing.T, text string) model.Record {
	return rec(t, model.KindMesh, "/"+model.MeshKey.Name, "rootNamespace: istio-system\n"+text)
}

// One more scope needs little work and memory, whatever the number of services, also after every service was edited.
func TestFurtherScopeIsSmall(t *testing.T) {
	for _, services := range []int{200, 800} {
		p, _, _ := bigPlanner(t, services, 8)
		if allocs := testing.AllocsPerRun(3, func() { p.Leave(p.Join(node("ns9", "a"))) }); allocs > 2600 {
			t.Errorf("%d services: one more scope allocates %.0f times", services, allocs)
		}
		var more []*Handle
		each := func(when string, most int64) {
			before := heap()
			for _, h := range more {
				p.Leave(h)
			}
			more = nil
			if bytes := (before - heap()) / 10; bytes > most {
				t.Errorf("%d services: %s one of ten scopes keeps %d bytes alive", services, when, bytes)
			}
		}
		join := func() {
			for i := range 10 {
				more = append(more, p.Join(node(fmt.Sprintf("ns%d", 10+i), "a")))
			}
		}
		join()
		each("new,", 80<<10)
		join()
		for i := range services { // each service in a step of its own, and its endpoints too
			ns, name := fmt.Sprintf("ns%d", i/10), fmt.Sprintf("s%d", i)
			host := fmt.Sprintf("%s.%s.svc.cluster.local", name, ns)
			p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{vsOf(t, ns+"/"+name, host, "s1.ns0.svc.cluster.local", "")}, nil))
			p.PlanEndpoints(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{readyEndpoints(t, ns, name, 3)}, nil), false)
		}
		each("after many edits,", 180<<10)
		runtime.KeepAlive(p)
	}
}
