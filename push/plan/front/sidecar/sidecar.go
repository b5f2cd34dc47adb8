// Package sidecar is the front of sidecars: the listeners of a Sidecar's egress listeners, or of all services where no Sidecar
// applies, and the route configurations that they ask for.
//
// Owns: the listeners and route configurations of each scope.  Reads: plan/host.  Never: which service, rule or cluster a host has.
//
// A host contributes to listeners (traffic) and to route configurations (entries). A listener is planned from all that was contributed
// to it; a route configuration is kept for each port that has entries, and published while a listener asks for it.
package sidecar

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Front is the front of one scope.
type Front struct {
	in      *input.Input
	layer   *layer.Layer
	key     view.Scope
	hosts   *host.Table
	sidecar *model.Sidecar // nil: none applies
	egress  []*egress
	patches input.PatchSet

	listeners     layer.Table[outbound]
	routes        map[routeKey]*routes
	contributions layer.Table[contribution] // by host
	step          *step
	problems      input.Problems
	// own marks the listeners and route configurations that are this front's alone; others it shares, and copies before it changes
	// them.
	own *editor

	pieces []*xds.Fragment // reused by planRoutes
}

// editor is the identity under which a front may change a part of itself in place.
type editor struct{ _ byte }

// contribution is what a host brings to listeners and route configurations. Scopes share it: it is replaced, never changed.
type contribution struct {
	traffic []traffic
	routes  []routeKey // in which it has an entry
}

func (c *contribution) equal(o *contribution) bool {
	return slices.Equal(c.traffic, o.traffic) && slices.Equal(c.routes, o.routes)
}

// step is what is to be planned again in one step.
type step struct {
	listeners map[string]bool
	routes    map[routeKey]map[string]bool // hosts whose virtual hosts are to be decided again
}

func newStep() *step {
	return &step{listeners: map[string]bool{}, routes: map[routeKey]map[string]bool{}}
}

// mark marks a route configuration.
func (st *step) mark(rc routeKey) {
	if st.routes[rc] == nil {
		st.routes[rc] = map[string]bool{}
	}
}

// entry marks one host's virtual host in a route configuration.
func (st *step) entry(rc routeKey, host string) {
	st.mark(rc)
	st.routes[rc][host] = true
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	strs      intern.Table[string]
	chains    intern.Table[listener.Chain]
	targets   intern.Table[listener.Target]
	fragments intern.Table[*xds.Fragment]
)

func importsOf(listeners []*egress) (out []*host.Imports) {
	for _, e := range listeners {
		out = append(out, e.Imports)
	}
	return out
}

// New makes the front of a scope, and its host table, without hosts: what stays for as long as the scope does is planned. A Sidecar
// of nil means that none applies.
func New(in *input.Input, key view.Scope, sidecar *model.Sidecar, patches input.PatchSet, to *layer.Layer) (*Front, *host.Table) {
	f := &Front{in: in, layer: to, key: key, sidecar: sidecar, patches: patches, routes: map[routeKey]*routes{},
		step: newStep(), problems: input.Problems{}, own: &editor{}}
	var found []input.Problem
	f.egress, found = egressOf(sidecar, key)
	f.hosts = host.New(in, key, host.Envoy, importsOf(f.egress), patches, to)
	f.planAdded(&found)
	f.planStatic(&found)
	f.planVirtual(&found)
	f.problems.Set("scope", found)
	return f, f.hosts
}

// Read implements front.Front.
func (f *Front) Read(in *input.Input) { f.in = in }

// Problems implements front.Front.
func (f *Front) Problems() input.Problems { return f.problems }

// Fork implements front.Front.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	f.own = &editor{}
	next := *f
	if key != f.key {
		next.egress, _ = egressOf(f.sidecar, key)
	}
	next.key, next.layer, next.hosts = key, to, f.hosts.Fork(key, importsOf(next.egress), to)
	next.own, next.step = &editor{}, newStep()
	next.listeners, next.routes, next.contributions = f.listeners.Fork(), maps.Clone(f.routes), f.contributions.Fork()
	next.problems, next.pieces = f.problems.Clone(), nil
	return &next, next.hosts
}

// planAdded plans the clusters and listeners that EnvoyFilters add.
func (f *Front) planAdded(found *[]input.Problem) {
	for u := range f.in.Added(f.patches, host.Side(f.key), found) {
		f.layer.Claim(u)
		for _, ref := range u.Res.Needs {
			if ref.Type == xds.Route {
				f.use(routeNamed(ref.Name), 1)
			}
		}
	}
}

// planStatic plans the clusters that every proxy has.
func (f *Front) planStatic(found *[]input.Problem) {
	side := host.Side(f.key)
	for _, name := range []string{xds.BlackHole, xds.Passthrough} {
		if !f.patches.Any(func(p model.Patch) bool { return input.RemovesCluster(p, side, name) }) {
			f.fixed(cluster.Static{Name: name, Mesh: f.in.Meshes.Cluster, Patches: f.patches.Matching(func(p model.Patch) bool {
				return input.MergesCluster(p, side, name)
			})}, found)
		}
	}
}

// fixed plans what stays for as long as the scope does.
func (f *Front) fixed(spec pool.ResourceSpec, found *[]input.Problem) {
	if u, ok := f.in.Make(spec, model.MeshKey, found); ok && !f.layer.Claimed(u.Res) {
		f.layer.Add(u)
	}
}

// Host implements front.Front.
func (f *Front) Host(name string, what input.Types) (uses bool) {
	if f.key.Kind == view.Router {
		return false // what gateways listen on is for Gateways to say
	}
	h, now := f.hosts.Get(name), f.contributionOf(name)
	if what.Has(input.LDS) {
		now.traffic = f.planTraffic(h, now.traffic)
	}
	if what.Has(input.RDS) {
		now.routes = f.planEntries(h, now.routes)
	}
	f.contribute(name, now)
	return len(now.traffic)+len(now.routes) > 0
}

// Endpoints implements front.Front: listeners of headless services are for the addresses of their endpoints.
func (f *Front) Endpoints(h *host.Host) {
	if h.Service.Spec.GetHeadless() && f.key.Kind != view.Router {
		now := f.contributionOf(h.Name)
		now.traffic = f.planTraffic(h, now.traffic)
		f.contribute(h.Name, now)
	}
}

func (f *Front) contributionOf(name string) contribution {
	if c := f.contributions.Get(name); c != nil {
		return *c
	}
	return contribution{}
}

// sharedContribution is the key of layer.Share.
type sharedContribution string

// contribute keeps what a host contributes now. What is as it was stays the value that it was.
func (f *Front) contribute(name string, now contribution) {
	was := f.contributions.Get(name)
	switch {
	case len(now.traffic)+len(now.routes) == 0:
		f.contributions.Put(name, nil)
	case was == nil || !was.equal(&now):
		f.contributions.Put(name, layer.Share(f.in.Sharing, sharedContribution(name), &now, (*contribution).equal))
	}
}

// planTraffic brings a host's traffic to listeners in place of what it brought before, and returns it.
func (f *Front) planTraffic(h *host.Host, old []traffic) []traffic {
	now, found := f.trafficOf(h, f.hosts)
	f.problems.Set("host "+h.Name, found)
	if slices.Equal(old, now) {
		return old
	}
	for _, t := range old {
		f.bring(h.Name, t, -1)
	}
	for _, t := range now {
		f.bring(h.Name, t, 1)
	}
	return now
}

// planEntries enters a host into route configurations in place of those that it was in, and returns them.
func (f *Front) planEntries(h *host.Host, old []routeKey) []routeKey {
	entries := f.entriesOf(h)
	for _, rc := range old {
		if entries[rc] == nil {
			f.enter(rc, h.Name, nil)
		}
	}
	for rc, en := range entries {
		f.enter(rc, h.Name, en)
	}
	return slices.SortedFunc(maps.Keys(entries), routeKey.compare)
}

// Finish implements front.Front.
func (f *Front) Finish(rest func()) {
	for name := range f.step.listeners {
		if l := f.listeners.Get(name); l != nil {
			f.planListener(l)
			rest()
		}
	}
	for _, key := range f.changed() {
		rc := f.routes[key]
		if rc == nil {
			continue
		}
		for h := range f.step.routes[key] {
			if en := rc.entries.Get(h); en != nil {
				f.planEntry(rc, en)
				rest()
			}
		}
		f.planRoutes(rc)
		rest()
	}
}

// changed are the route configurations of the step.
func (f *Front) changed() []routeKey {
	return slices.SortedFunc(maps.Keys(f.step.routes), routeKey.compare)
}

// Done implements front.Front.
func (f *Front) Done() {
	if len(f.step.listeners)+len(f.step.routes) > 0 {
		f.step = newStep()
	}
}
