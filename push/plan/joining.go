package plan

import (
	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Joining is the unfinished join of one proxy. It plans those layers of the proxy's view that do not exist yet and take
// long to plan. The layers are the scope (the shared outbound side), the variant of the scope for the proxy's inputs,
// and the workload (the inbound side). Only the planner's goroutine may use it.
type Joining struct {
	stepwise
	p       *Planner
	node    view.Node
	view    view.View
	inbound *inbound.Workload // planned for the view with the planner's input; nil if it is not planned
	stale   bool              // the work has to begin again, because the view or a layer that it depends on has changed
	waits   bool              // the last Step waited for another join
}

// BeginJoin starts the join of a proxy whose layers are planned in pieces. The caller calls Step until it returns
// false, and then End, or Drop at any time instead. Between two Steps other changes and joins may be planned. BeginJoin
// panics while a change is being planned, and after Planner.Drop.
func (p *Planner) BeginJoin(n view.Node) *Joining {
	p.idle("BeginJoin")
	j := &Joining{p: p, node: n}
	p.joining[j] = struct{}{}
	return j
}

// Step plans layers until the join is complete, or until the function stop returns true. Step calls stop after each
// piece of work. The result is false if no work is left. The caller then calls End before the planner plans anything
// else. If another join plans a scope from which the scope of this join can be cloned, Step returns true without any
// work. Step panics while a change is being planned, after Planner.Drop, and if planning a layer panics.
func (j *Joining) Step(stop func() bool) (more bool) {
	p := j.p
	p.idle("Step of a join")
	if j.stale {
		j.drop()
	}
	if j.next == nil {
		if j.waits && p.awaits(j.view.Scope) {
			return true
		}
		if j.view = p.viewOf(j.node); !p.lacks(j.view) {
			return false
		}
		if j.waits = p.awaits(j.view.Scope); j.waits {
			return true
		}
		if p.scopes[j.view.Scope] == nil {
			p.firsts[templateKey(j.view.Scope)] = j
		}
		j.stepwise = newStepwise(p.input, p.fastSteps)
		j.start(j.plan)
	}
	return j.advance(stop)
}

// awaits reports whether a scope has no template yet and another join is planning the template.
func (p *Planner) awaits(of view.Scope) bool {
	return p.firsts[templateKey(of)] != nil && of.Sidecar == (model.Key{}) && p.scopes[of] == nil && p.templateFor(of, p.input) == nil
}

// templateKey returns a key that is equal for all scopes that may be templates of one another.
func templateKey(of view.Scope) view.Scope {
	of.Namespace = ""
	return of
}

// drop ends the work that has begun, so that the work can begin again.
func (j *Joining) drop() {
	j.stepwise.drop()
	if j.stepwise, j.inbound, j.stale = (stepwise{}), nil, false; j.p.firsts[templateKey(j.view.Scope)] == j {
		delete(j.p.firsts, templateKey(j.view.Scope))
	}
}

// Lacks reports whether the view lacks a layer that takes long to plan. If the result is false, End may be called
// without Step.
func (j *Joining) Lacks() bool { return j.p.lacks(j.p.viewOf(j.node)) }

// fewHosts is the number of hosts below which a variant of a scope is planned at once.
const fewHosts = 200

// lacks reports whether the planner lacks a layer of the view that takes long to plan.
func (p *Planner) lacks(v view.View) bool { return p.lacksOutbound(v) || p.lacksInbound(v) }

// lacksOutbound reports whether the planner lacks the scope or the variant, if planning it takes long.
func (p *Planner) lacksOutbound(v view.View) bool {
	s := p.scopes[v.Scope]
	return s == nil || v.Inputs != (view.Inputs{}) && s.variants[v.Inputs] == nil && s.hosts.Len() >= p.fewHosts
}

// lacksInbound reports whether the planner lacks the workload, if planning it takes long. A workload takes long to plan
// if the product of its ports and policies is large, since each port has all policies.
func (p *Planner) lacksInbound(v view.View) bool {
	if p.workloads[v.Workload] != nil {
		return false
	}
	ports := 1
	for _, key := range v.Workload.Services.All() {
		if r, ok := p.input.Get(key); ok {
			ports += len(r.(*model.Service).Spec.GetPorts())
		}
	}
	return ports*(1+v.Workload.Policies.Len()+v.Workload.Authentications.Len()) >= p.fewHosts
}

// plan plans the scope, or a copy of the existing one, with the variant, and then the workload.
func (j *Joining) plan() {
	if j.p.lacksOutbound(j.view) {
		j.planOutbound()
	}
	for j.inbound == nil && j.p.lacksInbound(j.view) {
		j.planInbound()
		for _, d := range j.shadows {
			j.work(d, func() {}) // follows the steps planned meanwhile, during which the workload may change
		}
	}
}

// planOutbound plans the scope and the variant on a shadow (an unpublished copy).
func (j *Joining) planOutbound() {
	key := j.view.Scope
	var d *shadow
	if s := j.p.scopes[key]; s != nil {
		d = &shadow{scope: s.fork(key), done: len(j.since)}
		d.pauses(j.pause)
		j.shadows[key] = d
	} else {
		d = j.fresh(j.p, key, j.p.templateFor(key, j.base))
	}
	j.vary(d, j.view.Inputs)
}

// planInbound plans the workload. The result is dropped if a change touches it meanwhile.
func (j *Joining) planInbound() {
	began := len(j.since)
	made := kinds[j.view.Workload.Kind].workload(j.p.input, j.view.Workload, j.pause)
	for _, u := range j.since[began:] {
		if u.affected != nil && u.affected.touches(made) {
			return
		}
	}
	j.inbound = made
}

// followChange adds a planned change to the steps that the join follows. If the join cannot follow it, the join has to
// begin again.
func (j *Joining) followChange(rp *replan) {
	if j.next == nil {
		return
	}
	j.since = append(append(j.since, plannedStep{in: rp.in, affected: rp.affected}), rp.since...)
	if j.inbound != nil && rp.touches(j.inbound) {
		j.inbound = nil
	}
	j.stale = j.stale || rp.everything || readsAny(j.view.Scope, rp.readers) || j.p.viewOf(j.node) != j.view ||
		len(j.shadows) == 0 && j.p.lacksOutbound(j.view)
}

// End completes the join and returns the handle of the joined proxy. It must be called after Step returned false, or if
// Lacks is false. It plans the layers that do not exist yet at once. End panics if a scope or variant is only planned
// in part, while a change is being planned, after Planner.Drop, and if planning a layer panics.
func (j *Joining) End() *Handle {
	p := j.p
	for _, d := range j.shadows {
		p.must("End of a join", !j.stale && !d.busy && d.done == len(j.since), "before its last Step")
	}
	for key, d := range j.shadows {
		p.graft(key, d)
	}
	made, wl := j.stepwise, j.view.Workload
	if p.workloads[wl] == nil && j.inbound != nil {
		p.workloads[wl] = &workload{Workload: j.inbound}
	}
	defer func() {
		p.sweep(&made)
		p.sweepInbound(wl)
	}()
	j.Drop()
	return p.Join(j.node)
}

// Drop ends a join without completing it. Repeated calls do nothing.
func (j *Joining) Drop() {
	delete(j.p.joining, j)
	j.drop()
}

// graft moves a shadow into the plan. If the scope exists, graft adds the shadow's variants to it. If there is no such
// scope, the shadow becomes the scope.
func (p *Planner) graft(key view.Scope, d *shadow) {
	d.pauses(nil)
	s := p.scopes[key]
	if s == nil {
		p.scopes[key] = d.scope
		p.index.adopt(d.scope)
		d.read(p.input)
		return
	}
	for inputs, v := range d.variants {
		if s.variants[inputs] == nil {
			s.variants[inputs] = &variant{Variation: v.Fork(s.hosts, v.Layer)}
			s.front.Vary(inputs)
		}
	}
}
