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

// backgroundFrom is the minimum size of a change that is planned on shadows, which are unpublished copies of scopes. A
// scope is the outbound configuration of a group of proxies. The size of a change is the number of touched hosts, times
// the number of scopes that may see them. Planning one host in one scope takes some 20 to 50 us. Smaller changes are
// planned in place, by End.
const backgroundFrom = 500

// replan is a change that is being planned. Until End, the scopes themselves contain the published plan, and the fast
// path (PlanEndpoints) changes them. End replaces the scopes with their shadows, all at once.
type replan struct {
	stepwise
	*change
	p         *Planner
	heavy     bool                        // the change is planned on shadows
	workloads map[view.Workload]*workload // planned from scratch, to be stored at the end
}

// Begin starts to plan a change of configuration, which Step continues and End completes. c.New must be resolved
// (push/resolve). c.Edits must contain all edits from the last planned snapshot to c.New, except the edits that
// PlanEndpoints has planned completely. Until End, the caller may only call Step, PlanEndpoints, Drop and methods that
// read. Other methods that plan panic until then. Begin panics before the End of another change and after Drop.
func (p *Planner) Begin(c mirror.Change) {
	p.must("Begin", p.replan == nil, "before the End of another change")
	relabelled := map[model.Key]bool{}
	for _, e := range c.Edits {
		relabelled[e.Key()] = p.keys.Apply(e)
	}
	p.latest = c.New
	ch := &change{affected: newAffected(), in: p.input.At(c.New, c.Edits...), was: p.input.Root(), relabelled: relabelled}
	ch.collect(p.table, c.Edits)
	rp := &replan{stepwise: newStepwise(ch.in, nil), change: ch, p: p, workloads: map[view.Workload]*workload{}}
	scopes, clients := 0, 0
	for key, s := range p.scopes {
		if rp.fromScratch(key) {
			continue
		}
		scopes += 1 + key.Filters.Len()/routesPerHost
		if s.hosts.Form().Whole {
			clients++
		}
	}
	rp.heavy = ch.weight()*scopes+ch.weightOf(ch.demands)*clients >= p.backgroundFrom
	rp.start(rp.plan)
	p.replan = rp
}

// must panics if inOrder is false or if Drop was called. A method that is called out of order would leave the views of
// proxies undefined. The parameter complaint is the part of the message that describes the wrong order.
func (p *Planner) must(method string, inOrder bool, complaint string) {
	if p.dropped {
		inOrder, complaint = false, "after Drop"
	}
	if !inOrder {
		panic("plan: Planner." + method + " " + complaint)
	}
}

// idle panics while a change is being planned. A proxy that joins, leaves or gets a key between Begin and End would be
// planned with parts of two inputs.
func (p *Planner) idle(method string) { p.must(method, p.replan == nil, "before the End of a change") }

// weight estimates the number of hosts that are touched in every scope.
func (c *change) weight() int {
	const wildcard = 100 // estimated number of hosts that a wildcard covers
	return len(c.pulls) + wildcard*(len(c.patterns)+len(c.reporting)) + c.weightOf(c.hosts) + c.weightOf(c.members)
}

// weightOf estimates the number of some touched hosts. A host with many resources counts as several hosts.
func (c *change) weightOf(hosts map[string]input.Types) (weight int) {
	for h := range hosts {
		weight += 1 + c.size(h)
	}
	return weight
}

// size estimates the size of a host, as the number of hosts with one port and as many clusters, routes, endpoints and
// addresses.
func (c *change) size(name string) int {
	ports, subsets, routes, endpoints, addresses := 0, 0, 0, 0, 0
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range c.in.ByHost(kind, name) {
			ports += len(r.(*model.Service).Spec.GetPorts())
			addresses += len(r.(*model.Service).Spec.GetAddresses())
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
	return ports*(1+subsets) + routes/routesPerHost + ports*endpoints/endpointsPerHost + ports*addresses/addressesPerHost
}

// endpointsPerHost is the number of endpoints that cost about as much as a host.
const endpointsPerHost = 50

// addressesPerHost is the number of virtual addresses that cost about as much as a host.
const addressesPerHost = 50

// routesPerHost is the number of routes or patches that cost about as much as a host.
const routesPerHost = 8

// fromScratch reports whether the change plans a scope from scratch.
func (rp *replan) fromScratch(key view.Scope) bool {
	return rp.everything || readsAny(key, rp.readers) || rp.reopens(rp.p.scopes[key])
}

// reopens reports whether a change touches the front of a scope (its listeners and routes) as a whole. It ignores
// records that the scope's key names, because readsAny checks these records.
func (d *affected) reopens(s *scope) bool {
	return s != nil && s.front.Touched(d.readers, d.services, d.ports, d.served)
}

// Step continues to plan a change until no work remains, or until the function stop returns true. Step calls this
// function after every piece of work. The result is false if no work remains, and the caller then calls End. Step
// panics without a Begin and after Drop.
func (p *Planner) Step(stop func() bool) (more bool) {
	p.must("Step", p.replan != nil, "without a Begin")
	return p.replan.advance(stop)
}

// plan plans the parts of a change that take long: shadows of scopes if the change is heavy, scopes from scratch, and
// workloads. It also plans the missing layers of views that proxies move to.
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
		rp.layersFor(rp.p.keys.View(rp.in.Snapshot, withPod(rp.p.latest, *h.Node)))
		rp.pause()
	}
}

// touches reports whether a change affects a workload.
func (d *affected) touches(wl *inbound.Workload) bool {
	return d.everything || wl.Touched(d.readers, d.services, d.ports, d.served) || wl.ReportsOtherwise(d.reports, d.hosts)
}

// layersFor plans the layers that a view lacks.
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

// template returns a scope from which a scope with the given key can be cloned, or nil. The returned scope already
// contains the change.
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

// shadowOf returns the shadow of a scope, which may still have to be planned.
func (rp *replan) shadowOf(s *scope) *shadow {
	d := rp.shadows[s.key]
	if d == nil {
		d = &shadow{scope: s.forkWhole(), of: s, busy: true}
		d.pauses(rp.pause)
		rp.shadows[s.key] = d
	}
	return d
}

// copyOf returns the shadow of a scope, on which the change is planned.
func (rp *replan) copyOf(s *scope) *shadow {
	d := rp.shadowOf(s)
	if d.busy {
		rp.work(d, func() { d.apply(rp.in, rp.affected) })
	}
	return d
}

// again plans a scope and its variants from scratch. Parts that equal those of the previous scope and variants are
// shared with them.
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

// replay makes shadows follow a step of the fast path (a plan of endpoints). Shadows that are planned completely follow
// it at once, and the other shadows follow it later.
func (rp *replan) replay(u plannedStep, touched map[*scope]bool) {
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

// Drop ends an unfinished change and all unfinished joins without a result. All later calls of methods that plan panic.
// Drop may be called more than once.
func (p *Planner) Drop() {
	p.dropped = true
	if p.replan != nil {
		p.replan.drop()
	}
	for j := range p.joining {
		j.drop()
	}
}

// End completes the change that Begin started, including the parts that Step has not planned yet, and publishes the
// result. It returns each proxy whose set of resources changed or that got another view, once, with the path Slow.
// Proxies of one view are adjacent, except for proxies that got another view. The result is nil if no proxy is
// affected. End panics without a Begin and after Drop.
func (p *Planner) End() []Moved {
	p.must("End", p.replan != nil, "without a Begin")
	rp := p.replan
	rp.advance(func() bool { return false })
	p.plans++
	p.replan, p.revision, p.fastSteps = nil, rp.in.Revision(), rp.since
	p.read(rp.in)
	rp.install()
	p.secrets.Plan(secret.Change{All: rp.everything, Secrets: rp.secrets, Referred: rp.referred, Labelled: rp.labelled, Granted: rp.granted})
	for _, pl := range p.views {
		p.relink(pl, p.scopes[pl.view.Scope], p.workloads[pl.view.Workload])
	}
	rebound := p.rebind(rp.change)
	p.sweep(&rp.stepwise)
	for key := range rp.workloads {
		p.sweepInbound(key)
	}
	for j := range p.joining {
		j.followChange(rp)
	}
	p.input.Sharing = nil
	return p.publish(rebound)
}

// install plans the change on the scopes that have no shadow, and stores the shadows and workloads in the planner.
func (rp *replan) install() {
	p := rp.p
	for key, s := range p.scopes {
		if rp.shadows[key] != nil {
			continue
		}
		s.apply(rp.in, rp.affected)
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

// swap replaces the content of a scope with the content of its shadow.
func (s *scope) swap(d *shadow, in *input.Input) {
	index, refs, renewed := s.index, s.refs, d.step.renewed
	*s = *d.scope
	s.index, s.refs, s.step = index, refs, newStep()
	for name := range renewed {
		index.set(name, s, s.hosts.Get(name) != nil)
	}
	s.read(in)
}

// touched yields the proxies whose views may differ after a change. Proxies may repeat.
func (p *Planner) touched(c *change) iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for of, handles := range p.pods {
			for h := range handles {
				if (c.allPods || c.pods[of]) && !yield(h) {
					return
				}
			}
		}
		if len(c.views) == 0 && !c.routers {
			return
		}
		for h := range p.handles {
			if (c.views["*"] || c.views[h.Node.Namespace] || c.routers && h.Node.Kind == view.Router) && !yield(h) {
				return
			}
		}
	}
}

// rebind binds the touched proxies to their present views. It returns the proxies whose view has changed.
func (p *Planner) rebind(c *change) map[*Handle]bool {
	rebound := map[*Handle]bool{}
	for h := range p.touched(c) {
		p.rebindOne(h, rebound)
	}
	return rebound
}

// publish composes all views. It returns the proxies whose sets changed, and all rebound proxies.
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
