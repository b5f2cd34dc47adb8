package plan

import (
	"sync/atomic"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Path says how urgent a move is.
type Path uint8

// The paths of a push.
const (
	Slow Path = iota // configuration
	Fast             // nothing but endpoints differs
)

// Settings of a Planner.
type Settings struct {
	Pool     *pool.Pool       // nil: one of its own
	Snapshot *mirror.Snapshot // to start from, resolved; nil: the empty one
	Cluster  string           // what the config cluster is called in endpoints of it (topology.istio.io/cluster), by which failoverPriority may prefer

	fault func(*input.Input, view.Scope) // see input.Input.Fault
}

// Planner plans the views of all proxies that joined, and keeps them planned as snapshots change. It has no clock and no
// socket, and belongs to one goroutine.
type Planner struct {
	input      *input.Input
	table      *[model.NumKinds][]effect
	keys       *view.Index
	scopes     map[view.Scope]*scope
	workloads  map[view.Workload]*workload
	views      map[view.View]*planned
	overlays   int // views with an overlay that is not empty
	handles    map[*Handle]struct{}
	pods       podIndex
	latest     *mirror.Snapshot // that the planner was told of; input may be older while something waits
	index      hostIndex
	secrets    *secret.Table
	identities map[view.Identity]*identity
	// revision of the store that everything planned is complete at.
	revision       int64
	plans          int64 // of configuration, so far
	fastHosts      fastHosts
	replan         *replan  // a change that is being planned; nil: none is
	dropped        bool     // Drop was called
	backgroundFrom int      // see the constant
	replayed       []played // what the fast path has planned that input does not have
	joining        map[*Joining]struct{}
	firsts         map[view.Scope]*Joining // those that make a scope of which others may be clones, by alike
	fewHosts       int                     // see the constant
	reports        reports                 // what the builders said when they were last asked
	counts         patchCounts
}

// planned is one view and what was planned for it.
type planned struct {
	view     view.View
	scope    *scope
	variant  *variant
	workload *workload
	overlay  *manifest.Manifest
	identity *identity          // nil: it may have no Secrets
	modules  []model.Key        // extensions whose modules agents fetch
	pulled   *manifest.Manifest // of these, what has a credential
	names    bool               // a proxy asks for the name table
	set      atomic.Pointer[manifest.Set]
	handles  map[*Handle]struct{}
	id       atomic.Pointer[string] // nil: nobody has asked for it
}

// workload is the inbound side that views share.
type workload struct {
	*inbound.Workload
	refs int
}

// identity is the Secrets of an identity, and the views that have them.
type identity struct {
	*secret.Subscriptions
	views map[*planned]struct{}
}

// Handle is one proxy that joined.
type Handle struct {
	Node    view.Node
	planned atomic.Pointer[planned]
	secrets secret.Names // that it subscribes to; the planner's
	names   bool         // it asks for the name table; the planner's
}

// Set is everything the proxy should have; safe for any goroutine.
func (h *Handle) Set() *manifest.Set { return h.planned.Load().set.Load() }

// View is what decides it; safe for any goroutine.
func (h *Handle) View() view.View { return h.planned.Load().view }

// ID is equal for all proxies that have the same outbound side; safe for any goroutine.
func (h *Handle) ID() string {
	pl := h.planned.Load()
	if id := pl.id.Load(); id != nil {
		return *id
	}
	id := pl.view.Scope.String()
	pl.id.Store(&id)
	return id
}

// Moved says that a proxy should have something else.
type Moved struct {
	Handle *Handle
	Path   Path
}

// New makes a planner; nobody has joined it.
func New(c Settings) *Planner {
	if c.Pool == nil {
		c.Pool = &pool.Pool{}
	}
	if c.Snapshot == nil {
		c.Snapshot = mirror.Empty()
	}
	in := input.New(c.Snapshot, c.Pool, c.Cluster)
	in.Fault = c.fault
	return &Planner{
		input: in, table: &affects, keys: view.NewIndex(c.Snapshot), latest: c.Snapshot, revision: c.Snapshot.Revision(),
		scopes: map[view.Scope]*scope{}, workloads: map[view.Workload]*workload{}, views: map[view.View]*planned{}, handles: map[*Handle]struct{}{},
		pods: podIndex{}, index: hostIndex{}, secrets: secret.New(in), identities: map[view.Identity]*identity{}, backgroundFrom: backgroundFrom,
		joining: map[*Joining]struct{}{}, firsts: map[view.Scope]*Joining{}, fewHosts: fewHosts,
	}
}

// read has everything that plans one thing for all scopes plan with another input from now on.
func (p *Planner) read(in *input.Input) {
	p.input = in
	p.secrets.Read(in)
}

// Join plans a proxy's view, or finds it planned. Where that panics, the planner is as it was before.
func (p *Planner) Join(n view.Node) *Handle {
	p.idle("Join")
	h := &Handle{Node: n}
	p.join(h)
	return h
}

func (p *Planner) join(h *Handle) {
	p.bind(h, p.viewOf(h.Node))
	p.pods.add(h)
	p.handles[h] = struct{}{}
}

// Leave ends what Join began. What no proxy uses any more is dropped.
func (p *Planner) Leave(h *Handle) {
	p.idle("Leave")
	if _, ok := p.handles[h]; !ok {
		return
	}
	p.SubscribeSecrets(h, nil, h.secrets.All())
	delete(p.handles, h)
	p.pods.remove(h)
	p.unbind(h, h.planned.Load())
}

func (p *Planner) bind(h *Handle, v view.View) {
	pl := p.views[v]
	if pl == nil {
		pl = p.plan(v)
		p.views[v] = pl
	}
	pl.handles[h] = struct{}{}
	h.planned.Store(pl)
	if h.names {
		p.giveNames(pl)
	}
}

func (p *Planner) unbind(h *Handle, pl *planned) {
	delete(pl.handles, h)
	if len(pl.handles) > 0 {
		return
	}
	delete(p.views, pl.view)
	p.release(pl)
}

// release drops the layers of a view that no view uses any more. Those that it has not got to are nil.
func (p *Planner) release(pl *planned) {
	if pl.workload != nil {
		if pl.workload.refs--; pl.workload.refs == 0 {
			delete(p.workloads, pl.view.Workload)
		}
	}
	if pl.variant != nil {
		if pl.variant.refs--; pl.variant.refs == 0 {
			pl.scope.forget(pl.view.Inputs)
		}
	}
	p.leaveIdentity(pl)
	p.overlay(pl, nil)
	if pl.scope != nil {
		if pl.scope.refs--; pl.scope.refs == 0 {
			delete(p.scopes, pl.view.Scope)
			p.index.retire(pl.scope)
		}
	}
}

// plan finds or plans the layers of a view.
func (p *Planner) plan(v view.View) *planned {
	pl := &planned{view: v, modules: modulesOf(v), handles: map[*Handle]struct{}{}}
	done := false
	defer func() {
		if !done { // it panics
			p.release(pl)
		}
	}()
	if pl.scope = p.scopes[v.Scope]; pl.scope == nil {
		pl.scope = p.scopeFor(v.Scope)
		p.scopes[v.Scope] = pl.scope
		p.index.adopt(pl.scope)
	}
	pl.scope.refs++
	if v.Inputs != (view.Inputs{}) {
		pl.variant = pl.scope.variantOf(v.Inputs, p.input, p.replayed)
		pl.variant.refs++
	}
	if pl.workload = p.workloads[v.Workload]; pl.workload == nil {
		pl.workload = &workload{Workload: kinds[v.Workload.Kind].workload(p.input, v.Workload, func() {})}
		p.workloads[v.Workload] = pl.workload
	}
	pl.workload.refs++
	p.overlay(pl, pl.workload.Overlay(v.Addresses))
	p.joinIdentity(pl)
	p.input.Tested(v.Scope)
	pl.compose(p)
	done = true
	return pl
}

// compose publishes what the layers hold now, and says whether that differs from before.
func (pl *planned) compose(p *Planner) (moved bool) {
	set := manifest.Set{Revision: p.revision, Plan: p.plans, FastHosts: p.fastHosts.sorted}
	for t := range xds.NumTypes {
		set.Types[t][manifest.Scope] = pl.scope.layer.Manifest(t)
		if pl.variant != nil {
			set.Types[t][manifest.Variant] = pl.variant.Layer.Manifest(t)
		}
		set.Types[t][manifest.Workload] = pl.workload.Manifest(t)
	}
	set.Types[xds.Listener][manifest.Overlay] = pl.overlay
	if pl.identity != nil {
		pl.pulled = pl.identity.Modules(pl.modules, pl.pulled)
		set.Types[xds.Secret][manifest.Overlay], set.Types[xds.Extension][manifest.Overlay] = pl.identity.Manifest(), pl.pulled
	}
	if pl.names {
		set.Names = pl.scope.names[pl.view.Inputs.Network].Manifest()
	}
	set.Bootstrap = pl.workload.Bootstrap()
	old := pl.set.Load()
	if old != nil && old.Types == set.Types && old.Names == set.Names && old.Bootstrap == set.Bootstrap {
		return false
	}
	if old != nil && sameButEndpoints(old, &set) {
		set.Plan = old.Plan
	}
	fresh := set // moves to the heap only where it is published
	pl.set.Store(&fresh)
	return true
}

// sameButEndpoints says whether nothing but endpoints differs, and Secrets and credentials: those are opened when they are asked for.
func sameButEndpoints(a, b *manifest.Set) bool {
	x, y := a.Types, b.Types
	for _, t := range []xds.Type{xds.Endpoint, xds.Secret} {
		x[t], y[t] = manifest.Stack{}, manifest.Stack{}
	}
	x[xds.Extension][manifest.Overlay], y[xds.Extension][manifest.Overlay] = nil, nil
	return x == y && a.Names == b.Names && a.Bootstrap == b.Bootstrap
}

// Apply plans what a change touches and says who should have something else, in no order that means anything.
func (p *Planner) Apply(c mirror.Change) []Moved {
	p.Begin(c)
	return p.End()
}

// overlay gives a view its overlay, and counts those that are not empty.
func (p *Planner) overlay(pl *planned, now *manifest.Manifest) {
	p.overlays += min(now.Len(), 1) - min(pl.overlay.Len(), 1)
	pl.overlay = now
}

// relink has a view follow layers that were planned from scratch.
func (p *Planner) relink(pl *planned, s *scope, wl *workload) {
	if pl.scope = s; pl.variant != nil {
		pl.variant = s.variants[pl.view.Inputs]
	}
	if wl != pl.workload {
		pl.workload = wl
		p.overlay(pl, succeed(pl.overlay, wl.Overlay(pl.view.Addresses)))
	}
}

// succeed keeps the old overlay where the new one hides the same.
func succeed(old, now *manifest.Manifest) *manifest.Manifest {
	if old.Len() != now.Len() {
		return now
	}
	for r := range now.All() {
		if old.Get(r.Name) == nil {
			return now
		}
	}
	return old
}

// Revision is the store's revision that all planned views are complete at.
func (p *Planner) Revision() int64 { return p.revision }

// Snapshot is what was planned from.
func (p *Planner) Snapshot() *mirror.Snapshot { return p.input.Snapshot }

// Stats counts what is shared: scopes, variants, workloads, overlays, views, and the proxies that share them.
type Stats struct{ Scopes, Variants, Workloads, Overlays, Views, Proxies int }

// Stats counts. What it costs grows with the number of scopes, not with that of views or proxies: it is called at each join, for the gauges.
func (p *Planner) Stats() Stats {
	st := Stats{Scopes: len(p.scopes), Workloads: len(p.workloads), Views: len(p.views), Overlays: p.overlays, Proxies: len(p.handles)}
	for _, s := range p.scopes {
		st.Variants += len(s.variants)
	}
	return st
}

// Problems lists what was found while planning, and what the builders left out, each once, by object. The first time it
// costs as much as building everything again; later, what has changed since.
func (p *Planner) Problems() []Problem { return p.reports.answer(p.inquire()) }
