package plan

import (
	"context"
	"iter"
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

// Path is the way in which an edit is planned and pushed. It decides the urgency of the push.
type Path uint8

// The paths of edits.
const (
	Slow Path = iota // the configuration path: edits are debounced, then planned by Begin, Step and End
	Fast             // the fast path: edits of endpoint assignments are planned by PlanEndpoints
)

// Settings contains the arguments of New.
type Settings struct {
	Pool     *pool.Pool       // if nil, New makes a pool
	Snapshot *mirror.Snapshot // the resolved snapshot to start from; if nil, the empty snapshot
	// Cluster is the name of the config cluster. Endpoints of this cluster have the name as the value of the label
	// topology.istio.io/cluster, which failoverPriority may read.
	Cluster string

	fault func(*input.Input, view.Scope) // see input.Input.Fault
}

// Planner plans the views of all joined proxies, and keeps the plan up to date as snapshots change. A view is the group
// of all proxies with equal configuration. The Planner has no clock and no socket. Only one goroutine may use it.
type Planner struct {
	input          *input.Input
	table          *[model.NumKinds][]effect
	keys           *view.Index
	scopes         map[view.Scope]*scope
	workloads      map[view.Workload]*workload
	views          map[view.View]*planned
	overlays       int // number of views with an overlay that is not empty
	handles        map[*Handle]struct{}
	pods           podIndex
	latest         *mirror.Snapshot // the newest snapshot that a caller passed; input may be older
	index          hostIndex
	secrets        *secret.Table
	identities     map[view.Identity]*identity
	revision       int64 // revision of the store at which the plan is complete
	plans          int64 // number of plans of configuration so far
	fastHosts      fastHosts
	replan         *replan       // a change that is being planned; nil between changes
	dropped        bool          // Drop was called
	forked         bool          // the planner is a fork, which has no index of hosts
	backgroundFrom int           // the constant, unless a test changes it
	fastSteps      []plannedStep // steps of the fast path since input was set
	joining        map[*Joining]struct{}
	firsts         map[view.Scope]*Joining // by templateKey, joins that plan a scope from which others may be cloned
	fewHosts       int                     // the constant, unless a test changes it
	reports        reports                 // cached problems of builders
	counts         patchCounts
}

// planned is one view with its layers (groups of resources that views share).
type planned struct {
	view     view.View
	scope    *scope
	variant  *variant
	workload *workload
	overlay  *manifest.Manifest
	identity *identity          // nil if proxies of the view may not have Secrets
	modules  []model.Key        // extensions whose modules agents fetch
	pulled   *manifest.Manifest // the configurations of these modules that contain a credential
	names    bool               // a proxy has requested the name table
	set      atomic.Pointer[manifest.Set]
	handles  map[*Handle]struct{}
	id       atomic.Pointer[string] // cache of Handle.ID
}

// workload is an inbound configuration that several views may share.
type workload struct {
	*inbound.Workload
	refs int
}

// identity contains the Secrets of an identity, and the views that use them.
type identity struct {
	*secret.Subscriptions
	views map[*planned]struct{}
}

// Handle identifies one proxy that joined a Planner. It gives any goroutine access to the proxy's present set.
type Handle struct {
	Node    *view.Node // as passed to Join; immutable
	planned atomic.Pointer[planned]
	secrets secret.Names // the Secrets that the proxy subscribes to; only for the planner's goroutine
	names   bool         // the proxy has requested the name table; only for the planner's goroutine
}

// Set returns the planned resources of the proxy. The set is immutable, and a plan that changes the resources stores a
// new set. Set is safe for any goroutine.
func (h *Handle) Set() *manifest.Set { return h.planned.Load().set.Load() }

// View returns the present view of the proxy. It is safe for any goroutine.
func (h *Handle) View() view.View { return h.planned.Load().view }

// Views returns the number of different views of the proxies of one planner. It is safe for any goroutine.
func Views(of iter.Seq[*Handle]) int {
	views := map[*planned]struct{}{}
	for h := range of {
		views[h.planned.Load()] = struct{}{}
	}
	return len(views)
}

// ID returns a text that is equal for all proxies with the same scope (outbound configuration). It is safe for any
// goroutine.
func (h *Handle) ID() string {
	pl := h.planned.Load()
	if id := pl.id.Load(); id != nil {
		return *id
	}
	id := pl.view.Scope.String()
	pl.id.Store(&id)
	return id
}

// Moved names a proxy whose set changed, and the path of the edits that changed it.
type Moved struct {
	Handle *Handle
	Path   Path
}

// New returns a planner without proxies, at the snapshot c.Snapshot. Unset fields of c have the defaults that Settings
// describes.
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
		scopes: map[view.Scope]*scope{}, workloads: map[view.Workload]*workload{}, views: map[view.View]*planned{},
		handles: map[*Handle]struct{}{}, pods: podIndex{}, index: hostIndex{}, secrets: secret.New(in),
		identities: map[view.Identity]*identity{}, backgroundFrom: backgroundFrom, joining: map[*Joining]struct{}{},
		firsts: map[view.Scope]*Joining{}, fewHosts: fewHosts,
	}
}

// read replaces the input of the planner and of its table of Secrets.
func (p *Planner) read(in *input.Input) {
	p.input = in
	p.secrets.Read(in)
}

// Join adds a proxy, and plans its view unless the view is planned already. It returns a new handle for each call. Join
// panics while a change is being planned, and after Drop. If planning the view panics, so does Join, and the planner is
// unchanged.
func (p *Planner) Join(n view.Node) *Handle {
	p.idle("Join")
	h := &Handle{Node: &n}
	p.join(h)
	return h
}

// join adds a proxy.
func (p *Planner) join(h *Handle) {
	p.bind(h, p.viewOf(*h.Node))
	p.pods.add(h)
	p.handles[h] = struct{}{}
}

// Leave removes a joined proxy, and drops the layers that no other proxy uses. It ignores unknown handles. It panics
// while a change is being planned, and after Drop.
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

// bind adds a proxy to a view. If the view is not planned yet, bind plans it first.
func (p *Planner) bind(h *Handle, v view.View) {
	pl := p.views[v]
	if pl == nil {
		pl = p.plan(v)
		p.views[v] = pl
	}
	pl.handles[h] = struct{}{}
	h.planned.Store(pl)
	if h.names { // publish composes the view, and notifies its other proxies too
		p.planNamesFor(pl)
	}
}

// unbind removes a proxy from a view, and releases the view after its last proxy.
func (p *Planner) unbind(h *Handle, pl *planned) {
	delete(pl.handles, h)
	if len(pl.handles) > 0 {
		return
	}
	delete(p.views, pl.view)
	p.release(pl)
}

// release drops the layers of a view that no other view uses. Layers that were not planned yet are nil.
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

// plan finds or plans the layers of a view, and composes its set (the list of its resources).
func (p *Planner) plan(v view.View) *planned {
	pl := &planned{view: v, modules: modulesOf(v), handles: map[*Handle]struct{}{}}
	done := false
	defer func() {
		if !done { // after a panic
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
		pl.variant = pl.scope.variantOf(v.Inputs, p.input, p.fastSteps)
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

// compose makes the set of a view from its layers. If the set differs from the previous one, compose publishes it and
// returns true.
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
	fresh := set // a copy, so that set is moved to the heap only if it is published
	pl.set.Store(&fresh)
	return true
}

// sameButEndpoints reports whether two sets only differ in endpoints, Secrets and credentials. Secrets and credentials
// are opened on demand, so they change without a plan of configuration.
func sameButEndpoints(a, b *manifest.Set) bool {
	x, y := a.Types, b.Types
	for _, t := range []xds.Type{xds.Endpoint, xds.Secret} {
		x[t], y[t] = manifest.Stack{}, manifest.Stack{}
	}
	x[xds.Extension][manifest.Overlay], y[xds.Extension][manifest.Overlay] = nil, nil
	return x == y && a.Names == b.Names && a.Bootstrap == b.Bootstrap
}

// Apply plans a change at once, with Begin and End. c.New must be resolved (push/resolve). c.Edits must lead from the
// snapshot of the last change to c.New. Apply returns the result of End, a list of the proxies whose set or view
// changed. It panics while another change is being planned, and after Drop.
func (p *Planner) Apply(c mirror.Change) []Moved {
	p.Begin(c)
	return p.End()
}

// overlay sets the overlay of a view (its resources that are not shared), and counts the overlays that are not empty.
func (p *Planner) overlay(pl *planned, now *manifest.Manifest) {
	p.overlays += min(now.Len(), 1) - min(pl.overlay.Len(), 1)
	pl.overlay = now
}

// relink makes a view use the given scope and workload, which may have been planned again.
func (p *Planner) relink(pl *planned, s *scope, wl *workload) {
	if pl.scope = s; pl.variant != nil {
		pl.variant = s.variants[pl.view.Inputs]
	}
	if wl != pl.workload {
		pl.workload = wl
		p.overlay(pl, succeed(pl.overlay, wl.Overlay(pl.view.Addresses)))
	}
}

// succeed returns the old overlay if both overlays have resources with the same names. If not, it returns the new one.
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

// Revision returns the store's revision at which all views are complete.
func (p *Planner) Revision() int64 { return p.revision }

// Snapshot returns the resolved snapshot with which the present plan was made.
func (p *Planner) Snapshot() *mirror.Snapshot { return p.input.Snapshot }

// Stats contains the numbers of planned layers (scopes, variants, workloads and overlays), of views, and of proxies.
type Stats struct{ Scopes, Variants, Workloads, Overlays, Views, Proxies int }

// Stats returns the numbers of layers, views and proxies. Overlays without resources do not count. Its cost grows only
// with the number of scopes, since the gauges need it at each join.
func (p *Planner) Stats() Stats {
	st := Stats{Scopes: len(p.scopes), Workloads: len(p.workloads), Views: len(p.views), Overlays: p.overlays, Proxies: len(p.handles)}
	for _, s := range p.scopes {
		st.Variants += len(s.variants)
	}
	return st
}

// Problems lists the problems found while planning, and the settings that builders left out. Each problem is listed
// once, and the list is sorted by object. The first call builds all resources. Later calls inspect only new Specs (the
// inputs of builds).
func (p *Planner) Problems() []Problem {
	all, _ := p.ProblemsUntil(context.Background(), nil) // this context does not end
	return all
}

// ProblemsUntil returns the result of Problems for the namespaces for which the function selects returns true. If
// selects is nil, all namespaces are selected. Problems of planning proxies in other namespaces are left out, because
// they may name objects that are private there. If ctx ends first, the result is nil and the error is that of ctx.
func (p *Planner) ProblemsUntil(ctx context.Context, selects func(namespace string) bool) ([]Problem, error) {
	return p.reports.answer(ctx, p.problemSources(selects))
}
