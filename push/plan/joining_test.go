//go:build !race

package plan

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
)

// joiners are proxies that join step by step during a random history.
type joiners struct {
	*randomRun
	r       *rand.Rand
	joining []*Joining
	joined  int
	passed  int // applied during an unfinished join
}

// begin starts the join of another proxy.
func (d *joiners) begin() {
	all := slices.Concat(nodes(), apps(), zoned(), resolvers())
	n := all[d.r.IntN(len(all))]
	n.Namespace = []string{"a", "b", "c", "istio-system"}[d.r.IntN(4)]
	d.joining = append(d.joining, d.planner.BeginJoin(n))
}

// some advances each join by one or two steps, and finishes each join whose layers are complete.
func (d *joiners) some() {
	for _, j := range slices.Clone(d.joining) {
		if !j.Step(func() bool { return d.r.IntN(6) == 0 }) {
			d.handles = append(d.handles, j.End())
			d.joining = slices.DeleteFunc(d.joining, func(other *Joining) bool { return other == j })
			d.joined++
		}
	}
}

// Proxies that join step by step at any point of a history, with endpoints, changes and other joins in between, have
// the resources of a plan from scratch.
func TestJoinsInPieces(t *testing.T) {
	for seed := range uint64(max(3, *histories/2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			d := &joiners{randomRun: newRandomRun(t, 7000+seed, &affects).withApps(), r: rand.New(rand.NewPCG(seed, 7))}
			d.planner.fewHosts = 0
			for i := range 60 {
				if d.step(i); len(d.joining) < 4 {
					d.begin()
				}
				d.some()
				for _, j := range d.joining {
					if j.next != nil && len(j.shadows) > 0 {
						d.passed++
					}
				}
				d.drain()
				if d.some(); d.r.IntN(10) == 0 && len(d.joining) > 0 {
					d.joining[0].Drop()
					d.joining = d.joining[1:]
				}
				if diff := d.differs(i); diff != "" {
					t.Fatalf("seed %d step %d: %s\nafter\n%s", seed, i, diff, d.last)
				}
				if len(d.handles) > 24 {
					d.planner.Leave(d.handles[20])
					d.handles = slices.Delete(d.handles, 20, 21)
				}
			}
			if d.joined < 8 || d.passed < 10 {
				t.Errorf("%d proxies joined, and changes passed %d joins", d.joined, d.passed)
			}
		})
	}
}

// made are the numbers of resources and of memory objects that a step makes.
type made struct{ resources, objects int64 }

// pieces plans a change and then a joining proxy, one step in each turn. It returns the largest step and the number of
// steps.
func pieces(p *Planner, shared *pool.Pool, c mirror.Change, n view.Node) (h *Handle, most made, count int) {
	piece := func(f func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := measure(shared, f)
		runtime.ReadMemStats(&after)
		most.resources = max(most.resources, w.clusters+w.endpoints+w.listeners+w.routes+w.hosts)
		most.objects = max(most.objects, int64(after.Mallocs-before.Mallocs))
		count++
	}
	always := func() bool { return true }
	piece(func() { p.Begin(c) })
	for more := true; more; {
		piece(func() { more = p.Step(always) })
	}
	piece(func() { p.End() })
	j := p.BeginJoin(n)
	for more := true; more; {
		piece(func() { more = j.Step(always) })
	}
	piece(func() { h = j.End() })
	return h, most, count
}

// A step makes few resources, whatever a tenant's configuration makes of a mesh and whatever its size, both for a
// joining proxy and for a proxy that is present when the configuration changes. An attack that is four times as large
// results in up to sixteen times as many resources; a single resource, and therefore a step, becomes four times as
// large.
func TestPiecesAreSmall(t *testing.T) {
	const few, many = 6, 24
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			for _, there := range []bool{false, true} {
				var objects [2]int64
				for i, n := range []int{few, many} {
					c := bigMesh(t, 20).Apply(2, attack(t, n), nil)
					shared := &pool.Pool{}
					p := New(Settings{Pool: shared, Snapshot: c.Old})
					p.backgroundFrom, p.fewHosts = 0, 0
					p.Join(node("ns1", "a"))
					n := node("ns0", "a", "app=attack")
					if there {
						p.Join(n)
					}
					h, most, count := pieces(p, shared, c, n)
					objects[i] = most.objects
					if most.resources > 8 || count < 10 {
						t.Errorf("already there: %v: one of %d pieces makes %d resources", there, count, most.resources)
					}
					if bad := p.Check(h); len(bad) > 0 {
						t.Error(bad)
					}
				}
				if objects[1] > 5*objects[0] {
					t.Errorf("already there: %v: a piece makes %d objects, and of an attack four times as large %d", there, objects[0], objects[1])
				}
			}
		})
	}
}

// While a tenant's scope is planned, endpoints and changes of other tenants are planned, and other proxies join, also
// those of the same namespace whose layers already exist. The finished scope contains all these changes.
func TestLoopServesOthersDuringAJoin(t *testing.T) {
	src := newTestSource()
	l, err := NewLoop(Config{Source: src, DebounceAfter: 1, Coalesce: 1})
	if err != nil {
		t.Fatal(err)
	}
	src.now = bigMesh(t, 60)
	src.box.Put(mirror.Change{Old: mirror.Empty(), New: src.now})
	l.applyNewest(src.box)
	l.turn = 0
	enter := func(namespace string, labels ...string) *joinRequest {
		e := &joinRequest{node: node(namespace, "a", labels...), done: make(chan struct{})}
		l.await(func() { l.startJoin(e) })
		return e
	}
	finish := func(all ...*joinRequest) {
		for i := 0; slices.ContainsFunc(all, func(e *joinRequest) bool { return !e.answered() }); i++ {
			if l.plan(time.Now()); i > 100_000 {
				t.Fatal("a join does not end")
			}
		}
	}
	first := enter("ns1")
	finish(first)
	src.put(attacks["patches of clusters"](t, 5)...)
	l.applyNewest(src.box)
	tenant := enter("ns0")
	for range 10 {
		l.plan(time.Now())
	}
	finish(enter("ns1")) // returns when the patches are planned
	for range 10 {
		l.plan(time.Now())
	}
	if tenant.answered() || len(l.joinQueues) != 1 || len(tenant.join.shadows) != 1 {
		t.Fatal("the tenant's scope is not being made")
	}
	quick := enter("ns1", "some=label")
	other := enter("ns3")
	for range 3 {
		l.plan(time.Now())
	}
	if !quick.answered() || tenant.answered() {
		t.Error("a proxy for which all is there waits for the tenant's")
	}
	src.put(readyEndpoints(t, "ns0", "s3", 1))
	l.applyNewest(src.box)
	l.plan(time.Now())
	if got := addresses(t, first.proxy.Set(), "outbound|80||s3.ns0.svc.cluster.local"); got != "10.200.0.0:8080" || tenant.answered() {
		t.Errorf("endpoints wait for the tenant's scope: %s", got)
	}
	src.put(svc(t, "ns2/new", "10.99.0.1", "http:80:HTTP"))
	l.applyNewest(src.box)
	for i := 0; l.Revision() < 4 && i < 200; i++ {
		l.plan(time.Now())
	}
	if first.proxy.Set().Types[xds.Cluster].Get("outbound|80||new.ns2.svc.cluster.local") == nil || tenant.answered() {
		t.Error("a change waits for the tenant's scope")
	}
	finish(tenant, other)
	for _, e := range []*joinRequest{first, quick, tenant, other} {
		if e.err != nil {
			t.Fatal(e.err)
		}
		if bad := l.planner.Check(e.proxy.Handle); len(bad) > 0 {
			t.Errorf("%s: %v", e.node.Namespace, bad)
		}
	}
	if got := addresses(t, tenant.proxy.Set(), "outbound|80||s3.ns0.svc.cluster.local"); got != "10.200.0.0:8080" {
		t.Errorf("the tenant has endpoints %s", got)
	}
}

// Of scopes that differ only in the namespace, and whose proxies join at the same time, one is planned from scratch and
// all others are cloned from it.
func TestJoinWaitsForItsTemplate(t *testing.T) {
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: bigMesh(t, 40)})
	var all []*Joining
	for i := range 4 {
		all = append(all, p.BeginJoin(node(fmt.Sprintf("ns%d", i), "a")))
	}
	pieces := make([]int, len(all))
	for left := len(all); left > 0; {
		for i, j := range all {
			if j == nil {
				continue
			}
			if pieces[i]++; !j.Step(func() bool { return true }) {
				j.End()
				all[i] = nil
				left--
			}
			if len(p.scopes) == 0 && i > 0 && all[i].next != nil {
				t.Fatal("a second scope is planned from scratch")
			}
		}
	}
	if len(p.scopes) != 4 || len(p.firsts) != 0 || len(p.joining) != 0 {
		t.Errorf("%d scopes; %d and %d joins are left", len(p.scopes), len(p.firsts), len(p.joining))
	}
}
