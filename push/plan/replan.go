package plan

import (
	"iter"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// backgroundFrom is how large a change is planned on shadows: hosts that are touched, times the scopes that may see them.
// One takes some 20 to 50 us; less is planned where it stands, at the end.
const backgroundFrom = 500

// replan is a change that is being planned. Until End, proxies should have what the scopes themselves say, and the fast path
// (PlanEndpoints) plans on these. End puts the shadows in their place, all at once.
type replan struct {
	making
	*change
	p         *Planner
	heavy     bool                        // it is planned on shadows
	workloads map[view.Workload]*workload // as they will be
}

// Begin starts to plan what a change touches. Until End only Step, Drop and PlanEndpoints may be called. A call out of this
// order, or after Drop, panics.
func (p *Planner) Begin(c mirror.Change) {
	p.must("Begin", p.replan == nil, "before the End of another change")
	relabelled := map[model.Key]bool{}
	for _, e := range c.Edits {
		relabelled[e.Key()] = p.keys.Apply(e)
	}
	p.latest = c.New
	ch := &change{dirt: newDirt(), in: p.input.At(c.New, c.Edits...), was: p.input.Root(), relabelled: relabelled}
	ch.collect(p.table, c.Edits)
	rp := &replan{making: makingAt(ch.in, nil), change: ch, p: p, workloads: map[view.Workload]*workload{}}
	scopes := 0
	for key := range p.scopes {
		if !rp.fromScratch(key) {
			scopes += 1 + key.Filters.Len()/few
		}
	}
	rp.heavy = ch.weight()*scopes >= p.backgroundFrom
	rp.start(rp.plan)
	p.replan = rp
}

// must panics where a method is called out of order: what it would do to the views of proxies is not known then.
func (p *Planner) must(method string, inOrder bool, otherwise string) {
	if p.dropped {
		inOrder, otherwise = false, "after Drop"
	}
	if !inOrder {
		panic("plan: Planner." + method + " " + otherwise)
	}
}

// idle panics while a change is being planned: who comes, leaves or is given something between Begin and End would be planned half with each of
// two inputs.
func (p *Planner) idle(method string) { p.must(method, p.replan == nil, "before the End of a change") }

// weight is about how many hosts are touched in a scope. One of which much is made counts for many.
func (c *change) weight() int {
	const wildcard = 100 // hosts that one covers
	weight := len(c.pulls) + wildcard*(len(c.patterns)+len(c.reporting))
	for _, hosts := range []map[string]input.Types{c.hosts, c.members} {
		for h := range hosts {
			weight += 1 + c.size(h)
		}
	}
	return weight
}

// size is about how many hosts of one port have as many clusters, routes and endpoints as a host has.
func (c *change) size(name string) int {
	ports, subsets, routes, endpoints := 0, 0, 0, 0
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range c.in.ByHost(kind, name) {
			ports += len(r.(*model.Service).Spec.GetPorts())
		}
	}
	for r := range c.in.ByHost(model.KindDestinationRule, name) {
		subsets += len(r.(*model.DestinationRule).Spec.GetSubsets())
	}
	for r := range c.in.ByHost(model.KindVirtualService, name) {
		routes += len(r.(*model.VirtualService).Spec.GetHttp())
	}
	for r := range c.in.ByHost(model.KindEndpoints, name) {
		endpoints += len(r.(*model.Endpoints).Spec.GetEndpoints())
	}
	return ports*(1+subsets) + routes/few + ports*endpoints/many
}

// many endpoints cost about as much as a host.
const many = 50

// few is how many routes or patches cost about as much as a host.
const few = 8

// fromScratch says whether a scope is planned from scratch.
func (rp *replan) fromScratch(key view.Scope) bool { return rp.everything || readsAny(key, rp.readers) }

// Step goes on with a change until over says that the turn is over, which is asked after every piece. False: End has a little
// left to do.
func (p *Planner) Step(over func() bool) (more bool) {
	p.must("Step", p.replan != nil, "without a Begin")
	return p.replan.advance(over)
}

// plan makes what takes long: scopes that are touched much or from scratch, workloads, and layers of views that proxies change to.
func (rp *replan) plan() {
	for key, s := range rp.p.scopes {
		if rp.heavy && !rp.fromScratch(key) {
			rp.copyOf(s)
			rp.pause()
		}
	}
	for key, s := range rp.p.scopes {
		if rp.fromScratch(key) {
			rp.again(s)
			rp.pause()
		}
	}
	for key, wl := range rp.p.workloads {
		if rp.touches(wl.Workload) {
			next := &workload{kinds[key.Kind].workload(rp.in, key, rp.pause), wl.refs}
			next.Succeed(&wl.Layer, rp.in.Sharing, rp.pause)
			rp.workloads[key] = next
			rp.pause()
		}
	}
	for h := range rp.p.touched(rp.change) {
		rp.layersFor(rp.p.keys.View(rp.in.Snapshot, proved(rp.p.latest, h.Node)))
		rp.pause()
	}
}

// touches says whether a change reaches a workload.
func (d *dirt) touches(wl *inbound.Workload) bool {
	return d.everything || wl.Touched(d.readers, d.services, d.ports, d.served) || wl.ReportsOtherwise(d.reports, d.hosts)
}

// layersFor makes what a view lacks.
func (rp *replan) layersFor(v view.View) {
	d, s := rp.shadows[v.Scope], rp.p.scopes[v.Scope]
	switch {
	case d == nil && s == nil:
		d = rp.fresh(rp.p, v.Scope, rp.template(v.Scope))
	case d == nil && v.Inputs != (view.Inputs{}) && s.variants[v.Inputs] == nil:
		d = rp.copyOf(s)
	}
	if d != nil {
		rp.vary(d, v.Inputs)
	}
	if rp.p.workloads[v.Workload] == nil && rp.workloads[v.Workload] == nil {
		rp.workloads[v.Workload] = &workload{Workload: kinds[v.Workload.Kind].workload(rp.in, v.Workload, rp.pause)}
	}
}

// template is a scope that one may be cloned from, as it will be; nil: there is none.
func (rp *replan) template(key view.Scope) *scope {
	for _, d := range rp.shadows {
		if !d.busy && d.isTemplateFor(key) {
			return d.scope
		}
	}
	for _, s := range rp.p.scopes {
		if rp.shadows[s.key] == nil && !rp.fromScratch(s.key) && s.isTemplateFor(key) {
			return rp.copyOf(s).scope
		}
	}
	return nil
}

// shadowOf is the shadow of a scope, which may still have to be planned.
func (rp *replan) shadowOf(s *scope) *shadow {
	d := rp.shadows[s.key]
	if d == nil {
		d = &shadow{scope: s.fork(s.key), of: s, busy: true}
		for inputs, v := range s.variants {
			d.variants[inputs] = &variant{v.Fork(d.hosts, v.Layer.Fork()), v.refs}
		}
		d.pauses(rp.pause)
		rp.shadows[s.key] = d
	}
	return d
}

// copyOf is the shadow of a scope, planned.
func (rp *replan) copyOf(s *scope) *shadow {
	d := rp.shadowOf(s)
	if d.busy {
		rp.work(d, func() { d.apply(rp.in, rp.dirt) })
	}
	return d
}

// again plans a scope from scratch, with its variants.
func (rp *replan) again(s *scope) {
	d := rp.fresh(rp.p, s.key, rp.template(s.key))
	rp.work(d, func() { d.layer.Succeed(s.layer, rp.in.Sharing, rp.pause) })
	d.names = make(map[string]*nametable.Table, len(s.names))
	for network := range s.names {
		d.names[network] = nametable.New(d.hosts, network)
	}
	for inputs, old := range s.variants {
		rp.vary(d, inputs)
		v := d.variants[inputs]
		rp.work(d, func() { v.Layer.Succeed(old.Layer, rp.in.Sharing, rp.pause) })
		v.refs = old.refs
	}
}

// replay has shadows follow a step of the fast path: at once those that are planned.
func (rp *replan) replay(u played, touched map[*scope]bool) {
	for s := range touched {
		if rp.heavy && !rp.fromScratch(s.key) {
			rp.shadowOf(s)
		}
	}
	rp.since = append(rp.since, u)
	for _, d := range rp.shadows {
		if !d.busy {
			rp.follow(d)
		}
	}
}

// Drop ends what Begin and BeginJoin began, where nobody will End it: the planner is of no use afterwards, and what would plan
// panics. Drop may be called more than once.
func (p *Planner) Drop() {
	p.dropped = true
	if p.replan != nil {
		p.replan.drop()
	}
	for j := range p.joining {
		j.drop()
	}
}

// End plans the rest and says who should have something else, in no order that means anything. It panics where Begin has not begun a change.
func (p *Planner) End() []Moved {
	p.must("End", p.replan != nil, "without a Begin")
	rp := p.replan
	rp.advance(func() bool { return false })
	p.plans++
	p.replan, p.revision, p.replayed = nil, rp.in.Revision(), rp.since
	p.read(rp.in)
	rp.install()
	p.secrets.Plan(secret.Change{All: rp.everything, Secrets: rp.secrets, Referred: rp.referred, Labelled: rp.labelled, Granted: rp.granted})
	for _, pl := range p.views {
		p.relink(pl, p.scopes[pl.view.Scope], p.workloads[pl.view.Workload])
	}
	rebound := p.rebind(rp.change)
	p.sweep(&rp.making)
	for key := range rp.workloads {
		p.sweepInbound(key)
	}
	for j := range p.joining {
		j.passed(rp)
	}
	p.input.Sharing = nil
	return p.publish(rebound)
}

// install plans what was left for the end, and puts the shadows, and the workloads, in their places.
func (rp *replan) install() {
	p := rp.p
	for key, s := range p.scopes {
		if rp.shadows[key] != nil {
			continue
		}
		s.apply(rp.in, rp.dirt)
		for _, u := range rp.since {
			s.follow(u)
		}
		s.read(rp.in)
	}
	for key, d := range rp.shadows {
		d.pauses(nil)
		if d.of != nil {
			d.of.swap(d, rp.in)
			continue
		}
		if old := p.scopes[key]; old != nil {
			d.refs = old.refs
			p.index.retire(old)
		}
		p.scopes[key] = d.scope
		p.index.adopt(d.scope)
		d.read(rp.in)
	}
	for key, wl := range rp.workloads {
		p.workloads[key] = wl
	}
}

// swap puts a shadow in the place of the scope.
func (s *scope) swap(d *shadow, in *input.Input) {
	index, refs, renewed := s.index, s.refs, d.step.renewed
	*s = *d.scope
	s.index, s.refs, s.step = index, refs, newStep()
	for name := range renewed {
		index.set(name, s, s.hosts.Get(name) != nil)
	}
	s.read(in)
}

// touched are the proxies whose views may be others after a change; some may come twice.
func (p *Planner) touched(c *change) iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for of, handles := range p.pods {
			for h := range handles {
				if (c.allPods || c.pods[of]) && !yield(h) {
					return
				}
			}
		}
		if len(c.views) == 0 {
			return
		}
		for h := range p.handles {
			if (c.views["*"] || c.views[h.Node.Namespace]) && !yield(h) {
				return
			}
		}
	}
}

// rebind gives the proxies that a change touches the views that they have now, and says whose is another.
func (p *Planner) rebind(c *change) map[*Handle]bool {
	rebound := map[*Handle]bool{}
	for h := range p.touched(c) {
		p.rebindOne(h, rebound)
	}
	return rebound
}

// publish composes all views; those who are bound to another one have something else in any case.
func (p *Planner) publish(rebound map[*Handle]bool) (out []Moved) {
	for _, pl := range p.views {
		if pl.compose(p) {
			for h := range pl.handles {
				if !rebound[h] {
					out = append(out, Moved{h, Slow})
				}
			}
		}
	}
	for h := range rebound {
		out = append(out, Moved{h, Slow})
	}
	return out
}
