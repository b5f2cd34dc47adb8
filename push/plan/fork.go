package plan

import (
	"maps"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A fork is a planner with the plan of another planner, for another goroutine. Both planners share all planned values:
// hosts, entries, units, resources and manifests. These values never change, except the versions of a host in
// variations, which have a mutex (doc.go, Forks). Tables and scopes are copied. A fork is made in two parts. The first
// part (freeze) runs in the goroutine of the planner, and copies all values that change in place. The second part
// (fork) runs in any goroutine. It makes the proxies and views, which is most of the work.

// frozen contains the plan of a planner at one moment. Its values are immutable, or no other planner uses them.
type frozen struct {
	input     *input.Input
	table     *[model.NumKinds][]effect
	keys      *view.Index
	scopes    map[view.Scope]*scope
	workloads map[view.Workload]*workload
	views     []frozenView
	secrets   *secret.Table
	latest    *mirror.Snapshot
	fastSteps []plannedStep
	fastHosts []string
	revision  int64
	plans     int64
	proxies   int               // number of handles of all views
	known     map[any][]finding // see reports
}

// frozenView is one view with its proxies. The field `of` is the original view, of which only immutable fields may be
// read.
type frozenView struct {
	of      *planned
	set     *manifest.Set
	names   bool
	handles []frozenHandle
}

// frozenHandle is one proxy. The field `of` is the original handle, of which only Node may be read.
type frozenHandle struct {
	of      *Handle
	names   bool
	secrets secret.Names
}

// Fork returns a planner with the same plan and the same proxies, for use by another goroutine. The proxies have new
// handles in the fork, and the fork does not know the handles of p. PlanEndpoints panics on a fork. Fork panics while p
// plans a change, and after Drop.
func (p *Planner) Fork() *Planner { return p.freeze().fork() }

// freeze copies the values that the planner changes in place. Its cost grows with the numbers of scopes, views and
// proxies.
func (p *Planner) freeze() *frozen {
	p.idle("Fork")
	inputs := map[*input.Input]*input.Input{}
	copyOf := func(in *input.Input) *input.Input {
		if inputs[in] == nil {
			inputs[in] = in.Copy()
		}
		return inputs[in]
	}
	f := &frozen{input: copyOf(p.input), table: p.table, keys: p.keys.Fork(), scopes: make(map[view.Scope]*scope, len(p.scopes)),
		workloads: make(map[view.Workload]*workload, len(p.workloads)), views: make([]frozenView, 0, len(p.views)),
		latest: p.latest, fastHosts: p.fastHosts.sorted, revision: p.revision, plans: p.plans,
		proxies: len(p.handles), known: p.reports.copy()}
	f.secrets = p.secrets.Fork(f.input)
	for _, u := range p.fastSteps {
		f.fastSteps = append(f.fastSteps, plannedStep{in: copyOf(u.in), affected: u.affected, hosts: u.hosts})
	}
	for key, s := range p.scopes {
		next := s.forkWhole()
		next.refs = 0
		for _, v := range next.variants {
			v.refs = 0
		}
		next.read(copyOf(s.in))
		f.scopes[key] = next
	}
	for key, wl := range p.workloads {
		f.workloads[key] = &workload{Workload: wl.Workload}
	}
	handles := make([]frozenHandle, 0, len(p.handles))
	for _, pl := range p.views {
		first := len(handles)
		for h := range pl.handles {
			handles = append(handles, frozenHandle{h, h.names, h.secrets.Copy()})
		}
		f.views = append(f.views, frozenView{pl, pl.set.Load(), pl.names, handles[first:]})
	}
	return f
}

// forkWhole returns a copy of the scope with its variants.
func (s *scope) forkWhole() *scope {
	next := s.fork(s.key)
	for inputs, v := range s.variants {
		next.variants[inputs] = &variant{v.Fork(next.hosts, v.Layer.Fork()), v.refs}
	}
	return next
}

// fork returns a planner with the frozen plan. It may be called once.
func (f *frozen) fork() *Planner {
	p := &Planner{
		input: f.input, table: f.table, keys: f.keys, latest: f.latest, revision: f.revision, plans: f.plans, forked: true,
		scopes: f.scopes, workloads: f.workloads, views: make(map[view.View]*planned, len(f.views)),
		handles: make(map[*Handle]struct{}, f.proxies), pods: podIndex{}, secrets: f.secrets, identities: map[view.Identity]*identity{},
		backgroundFrom: backgroundFrom, joining: map[*Joining]struct{}{}, firsts: map[view.Scope]*Joining{}, fewHosts: fewHosts,
		fastSteps: f.fastSteps, fastHosts: fastHosts{sorted: f.fastHosts},
	}
	p.reports.known = f.known
	for _, v := range f.views {
		p.restoreView(v)
	}
	return p
}

// restoreView adds a frozen view with its proxies.
func (p *Planner) restoreView(v frozenView) {
	pl := &planned{view: v.of.view, modules: v.of.modules, names: v.names, handles: make(map[*Handle]struct{}, len(v.handles))}
	pl.scope, pl.workload = p.scopes[pl.view.Scope], p.workloads[pl.view.Workload]
	pl.scope.refs++
	pl.workload.refs++
	if pl.view.Inputs != (view.Inputs{}) {
		pl.variant = pl.scope.variants[pl.view.Inputs]
		pl.variant.refs++
	}
	p.overlay(pl, v.set.Types[xds.Listener][manifest.Overlay])
	pl.pulled = v.set.Types[xds.Extension][manifest.Overlay]
	if who := pl.view.Secrets; who != (view.Identity{}) {
		if p.identities[who] == nil {
			p.identities[who] = &identity{p.secrets.Of(who), map[*planned]struct{}{}}
		}
		pl.identity = p.identities[who]
		pl.identity.views[pl] = struct{}{}
	}
	pl.set.Store(v.set)
	p.views[pl.view] = pl
	handles := make([]Handle, len(v.handles))
	for i, of := range v.handles {
		h := &handles[i]
		h.Node, h.secrets, h.names = of.of.Node, of.secrets, of.names
		h.planned.Store(pl)
		pl.handles[h], p.handles[h] = struct{}{}, struct{}{}
		p.pods.add(h)
	}
}

// Handles returns the joined proxies, each with its present set. The caller owns the map, and must not change the sets.
// Later plans replace the sets of the handles, but not the sets in the map.
func (p *Planner) Handles() map[*Handle]*manifest.Set {
	all := make(map[*Handle]*manifest.Set, len(p.handles))
	for h := range p.handles {
		all[h] = h.Set()
	}
	return all
}

// copy returns a copy of the cached problems.
func (r *reports) copy() map[any][]finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}
