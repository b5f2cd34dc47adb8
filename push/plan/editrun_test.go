package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// EditRun is a random mesh with a planner and proxies of all kinds, for the tests of previews (plan_test).
type EditRun struct {
	t        testing.TB
	run      *randomRun
	resolver *resolve.Resolver
	handles  map[string]*Handle // by the ID of the node
	r        *rand.Rand
	joined   int // number of proxies that joined
}

// PreviewedKinds are the kinds that EditRun edits. A third of the turns are for policies.
var PreviewedKinds = func() []model.Kind {
	policies := []model.Kind{model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication}
	others := []model.Kind{model.KindService, model.KindServiceEntry, model.KindEndpoints, model.KindVirtualService,
		model.KindDestinationRule, model.KindSidecar, model.KindEnvoyFilter, model.KindSecret, model.KindMesh, model.KindGateway,
		model.KindTelemetry, model.KindWasmPlugin, model.KindTrafficExtension, model.KindSecretReader, model.KindWorkload,
		model.KindNetworkGateways}
	var turns []model.Kind
	for i, kind := range others {
		turns = append(turns, kind)
		if i%2 == 1 {
			turns = append(turns, policies[i/2%len(policies)])
		}
	}
	return turns
}()

// NewEditRun returns a mesh with some records.
func NewEditRun(t testing.TB, seed uint64) *EditRun {
	d := &randomRun{mesh: newMesh(t, seed), planner: New(Settings{}), snap: mirror.Empty()}
	d.mesh.auto = true
	e := &EditRun{t: t, run: d, resolver: resolve.New(nil), handles: map[string]*Handle{}, r: rand.New(rand.NewPCG(seed, 30))}
	for _, n := range slices.Concat(nodes(), resolvers()) {
		d.handles = append(d.handles, e.join(n))
	}
	for _, n := range slices.Concat(apps(), configured(t), bootstrapped(), zoned(), fetchers()) {
		d.apps = append(d.apps, e.join(n))
	}
	for range 40 {
		e.change(e.draw())
	}
	return e
}

// join adds a proxy with an ID of its own.
func (e *EditRun) join(n view.Node) *Handle {
	e.joined++
	n.ID = fmt.Sprintf("%d~%s.%s", e.joined, n.Name, n.Namespace)
	h := e.run.planner.Join(n)
	e.handles[n.ID] = h
	return h
}

// draw makes one random edit of any kind.
func (e *EditRun) draw() (model.Record, model.Key) {
	m := e.run.mesh
	makers := []func() (model.Record, model.Key){m.edit, m.edit, m.edit, m.rights, m.elsewhere, m.workload, m.gateways, m.token,
		m.telemetry, m.extensions, m.entrance, m.credentials, m.joined, m.leading, m.bootstrap}
	return makers[e.r.IntN(len(makers))]()
}

// maker returns a function that makes edits of some kinds, with the given one among them.
func (e *EditRun) maker(kind model.Kind) func() (model.Record, model.Key) {
	m := e.run.mesh
	switch kind {
	case model.KindRequestAuthentication:
		return m.token
	case model.KindGateway:
		return m.entrance
	case model.KindTelemetry:
		return m.telemetry
	case model.KindWasmPlugin, model.KindTrafficExtension:
		return m.extensions
	case model.KindSecretReader:
		return m.rights
	case model.KindWorkload:
		return m.workload
	case model.KindNetworkGateways:
		return m.gateways
	default:
		return m.edit
	}
}

// Next makes a random edit of a kind, often together with another edit. Edits of other kinds that were drawn before it
// are applied.
func (e *EditRun) Next(kind model.Kind) mirror.Change {
	var puts []model.Record
	var dels []model.Key
	take := func(put model.Record, del model.Key) {
		if put != nil {
			puts = append(puts, put)
		} else {
			dels = append(dels, del)
		}
	}
	for range 2000 {
		put, del := e.maker(kind)()
		if put != nil && put.Meta().Key.Kind != kind || put == nil && del.Kind != kind {
			take(put, del)
			continue
		}
		e.plan(e.resolver.Step(e.run.snap.Apply(e.run.snap.Revision()+1, puts, dels)))
		puts, dels = nil, nil
		if take(put, del); e.r.IntN(4) == 0 {
			take(e.draw())
		}
		return e.run.snap.Apply(e.run.snap.Revision()+1, puts, dels)
	}
	e.t.Fatalf("no edit of kind %v in 2,000 draws", kind)
	return mirror.Change{}
}

// change applies one edit.
func (e *EditRun) change(put model.Record, del model.Key) {
	var puts []model.Record
	var dels []model.Key
	if put != nil {
		puts = append(puts, put)
	} else {
		dels = append(dels, del)
	}
	e.Apply(e.run.snap.Apply(e.run.snap.Revision()+1, puts, dels))
}

// Base returns a function that completes a copy of the plan; any goroutine may call it.
func (e *EditRun) Base() func() *Base {
	f, r := e.run.planner.freeze(), e.resolver.Fork()
	return func() *Base { return &Base{Planner: f.fork(), Resolver: r} }
}

// Apply plans a change as the loop does: half of the changes by the fast path first.
func (e *EditRun) Apply(c mirror.Change) { e.plan(e.resolver.Step(c)); e.run.snap = c.New }

// plan also checks that each proxy whose set changes is notified.
func (e *EditRun) plan(c mirror.Change) {
	before, notified := e.Sets(), map[string]bool{}
	note := func(moved []Moved) {
		for _, m := range moved {
			notified[m.Handle.Node.ID] = true
		}
	}
	e.run.snap = e.resolver.Source()
	if e.r.IntN(2) == 0 {
		var moved []Moved
		moved, c.Edits = e.run.planner.PlanEndpoints(c, false)
		note(moved)
	}
	if len(c.Edits) > 0 || e.run.planner.Snapshot() != c.New {
		note(e.run.planner.Apply(c))
	}
	for id, set := range e.Sets() {
		if set != before[id] && !notified[id] {
			e.t.Errorf("%s is not notified of its new set", id)
		}
	}
}

// Sets returns the sets of all proxies, by the ID of the node.
func (e *EditRun) Sets() map[string]*manifest.Set {
	all := map[string]*manifest.Set{}
	for id, h := range e.handles {
		all[id] = h.Set()
	}
	return all
}

// Between does what may happen between two changes: subscriptions, rights, opened keys, proxies that join and leave.
func (e *EditRun) Between() {
	d := e.run
	h := d.handles[e.r.IntN(len(d.handles))]
	d.planner.SubscribeSecrets(h, []string{d.mesh.pick(wanted...), d.mesh.pick(wanted...)}, []string{d.mesh.pick(wanted...)})
	if e.r.IntN(6) == 0 {
		d.planner.AskNames(d.handles[e.r.IntN(len(d.handles))])
	}
	if e.r.IntN(4) == 0 {
		guest := e.join(node(d.mesh.pick("a", "b", "c", "istio-system"), "guest", d.mesh.pick("app=s0", "app=s9")))
		d.handles, d.guests = append(d.handles, guest), append(d.guests, guest)
	}
	if len(d.guests) > 3 {
		gone := d.guests[0]
		d.planner.Leave(gone)
		delete(e.handles, gone.Node.ID)
		d.guests = d.guests[1:]
		d.handles = slices.DeleteFunc(d.handles, func(h *Handle) bool { return h == gone })
	}
	d.authorise()
	d.open()
}

// Differs compares the planner with plans from scratch, and returns the differences.
func (e *EditRun) Differs() string {
	want := e.run.snap
	e.run.snap, _ = resolve.Snapshot(want)
	defer func() { e.run.snap = want }()
	return e.run.differs(1)
}
