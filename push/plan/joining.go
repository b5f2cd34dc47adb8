package plan

import (
	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Joining is a proxy that joins, while the scope or the variant of its view is made.
type Joining struct {
	making
	p       *Planner
	node    view.Node
	view    view.View
	inbound *inbound.Workload // made for the view, as the planner's input has it; nil: not made
	stale   bool              // what is made is for another view, or planned with what has changed as a whole
	waits   bool              // for another join, when it was last asked to go on
}

// BeginJoin starts to plan a proxy's view. Until End or Drop, everything else may be planned between two Steps.
func (p *Planner) BeginJoin(n view.Node) *Joining {
	p.idle("BeginJoin")
	j := &Joining{p: p, node: n}
	p.joining[j] = struct{}{}
	return j
}

// Step goes on until over says that the turn is over, which is asked after every piece. False: End has a little left to do,
// unless something else is planned first.
func (j *Joining) Step(over func() bool) (more bool) {
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
			p.firsts[alike(j.view.Scope)] = j
		}
		j.making = makingAt(p.input, p.replayed)
		j.start(j.plan)
	}
	return j.advance(over)
}

// awaits says whether a scope is made that will be the template of another, which has none yet.
func (p *Planner) awaits(of view.Scope) bool {
	return p.firsts[alike(of)] != nil && of.Sidecar == (model.Key{}) && p.scopes[of] == nil && p.templateFor(of, p.input) == nil
}

// alike is equal for scopes of which one may be the template of another.
func alike(of view.Scope) view.Scope {
	of.Namespace = ""
	return of
}

// drop ends what has begun, so that it may begin again.
func (j *Joining) drop() {
	j.making.drop()
	if j.making, j.inbound, j.stale = (making{}), nil, false; j.p.firsts[alike(j.view.Scope)] == j {
		delete(j.p.firsts, alike(j.view.Scope))
	}
}

// Lacks says whether the view lacks what takes long to plan, so that Step has something to do.
func (j *Joining) Lacks() bool { return j.p.lacks(j.p.viewOf(j.node)) }

// fewHosts are so few that a variant of a scope that has them is planned at once.
const fewHosts = 200

// lacks says whether there is not yet what takes long to plan of a view.
func (p *Planner) lacks(v view.View) bool { return p.lacksOutbound(v) || p.lacksInbound(v) }

func (p *Planner) lacksOutbound(v view.View) bool {
	s := p.scopes[v.Scope]
	return s == nil || v.Inputs != (view.Inputs{}) && s.variants[v.Inputs] == nil && s.hosts.Len() >= p.fewHosts
}

// lacksInbound says so of the workload: each of its ports has all policies.
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

// plan makes the scope, or a copy of the one that there is, with the variant, and the workload.
func (j *Joining) plan() {
	if j.p.lacksOutbound(j.view) {
		j.planOutbound()
	}
	for j.inbound == nil && j.p.lacksInbound(j.view) {
		j.planInbound()
		for _, d := range j.shadows {
			j.work(d, func() {}) // follows what was planned meanwhile, during which the workload may become another
		}
	}
}

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

// planInbound makes the workload, unless a change reaches it meanwhile.
func (j *Joining) planInbound() {
	began := len(j.since)
	made := kinds[j.view.Workload.Kind].workload(j.p.input, j.view.Workload, j.pause)
	for _, u := range j.since[began:] {
		if u.dirt != nil && u.dirt.touches(made) {
			return
		}
	}
	j.inbound = made
}

// passed has the join follow a change that was planned, or has the join begin again.
func (j *Joining) passed(rp *replan) {
	if j.next == nil {
		return
	}
	j.since = append(append(j.since, played{in: rp.in, dirt: rp.dirt}), rp.since...)
	if j.inbound != nil && rp.touches(j.inbound) {
		j.inbound = nil
	}
	j.stale = j.stale || rp.everything || readsAny(j.view.Scope, rp.readers) || j.p.viewOf(j.node) != j.view ||
		len(j.shadows) == 0 && j.p.lacksOutbound(j.view)
}

// End joins, with what was made. It panics unless the last Step said that there is no more.
func (j *Joining) End() *Handle {
	p := j.p
	for _, d := range j.shadows {
		p.must("End of a join", !j.stale && !d.busy && d.done == len(j.since), "before its last Step")
	}
	for key, d := range j.shadows {
		p.graft(key, d)
	}
	made, wl := j.making, j.view.Workload
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

// Drop ends what BeginJoin began, where nobody will End it.
func (j *Joining) Drop() {
	delete(j.p.joining, j)
	j.drop()
}

// graft gives a scope the variants of a shadow that is equal to it, or makes the shadow the scope.
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
