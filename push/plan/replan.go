package plan

import (
	"iter"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A change of much configuration takes long to plan, and endpoints of others must not wait for it. So it is planned in pieces
// (Begin, Step, End), and, where it is large, in the background: on shadow copies of the scopes. Until End, proxies should have what the
// scopes themselves say, and the fast path (PlanEndpoints) plans on these; each of its steps is replayed on the shadow copies, in the
// same order, so that scopes that come to the same keep sharing it; on the copy that is being planned, once that is done. End swaps the
// shadow copies in, all at once.

// backgroundFrom is how large a change is planned in the background: hosts that are touched, times the scopes that may see them. One takes
// some 20 to 50 us.
const backgroundFrom = 500

// replan is a change that is being planned.
type replan struct {
	*change
	scopes    []*scope // to be planned, but for those that are planned from scratch
	shadows   map[*scope]*shadow
	fastSteps []fastStep

	// next goes on with the shadow copies until a turn is over, and says whether there are more; stop ends it. A coroutine: a scope
	// may stop between any two hosts. Both nil: nothing is planned in the background.
	next func() (struct{}, bool)
	stop func()
	over func() bool // says whether the turn is over
}

// shadow is a scope as it will be.
type shadow struct {
	*scope
	planned bool
}

// fastStep is one step of the fast path: hosts, and the input with which they are planned on shadow copies.
type fastStep struct {
	in    *input.Input
	hosts map[string]input.Types
}

// Begin starts to plan what a change touches. Until End only Step, InBackground, Drop and, where it is planned in the background,
// PlanEndpoints may be called. A call out of this order, or after Drop, panics.
func (p *Planner) Begin(c mirror.Change) {
	p.must("Begin", p.replan == nil, "before the End of another change")
	relabelled := map[model.Key]bool{}
	for _, e := range c.Edits {
		relabelled[e.Key()] = p.keys.Apply(e)
	}
	p.latest = c.New
	ch := &change{dirt: newDirt(), in: p.input.At(c.New, c.Edits...), was: p.input.Root(), relabelled: relabelled}
	ch.collect(p.table, c.Edits)
	rp := &replan{change: ch, shadows: map[*scope]*shadow{}}
	for _, s := range p.scopes {
		if !rp.fromScratch(s) {
			rp.scopes = append(rp.scopes, s)
		}
	}
	if ch.weight()*len(rp.scopes) >= p.backgroundFrom {
		rp.next, rp.stop = iter.Pull(rp.turns)
	}
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

// weight is about how many hosts are touched in a scope.
func (d *dirt) weight() int {
	const wildcard = 100 // hosts that one covers
	return len(d.hosts) + len(d.members) + len(d.pulls) + wildcard*(len(d.patterns)+len(d.reporting))
}

// fromScratch says whether a scope is planned from scratch, at the end.
func (rp *replan) fromScratch(s *scope) bool { return rp.everything || s.reads(rp.readers) }

// InBackground says whether a change is being planned in the background: PlanEndpoints may come between two steps.
func (p *Planner) InBackground() bool { return p.replan != nil && p.replan.next != nil }

// Step goes on with a change that is planned in the background, until over says that the turn is, which is asked after every host.
// False: all shadow copies are planned, and End has a little left to do. It panics where no change is planned in the background.
func (p *Planner) Step(over func() bool) (more bool) {
	p.must("Step", p.InBackground(), "of no change that is planned in the background")
	p.replan.over = over
	_, more = p.replan.next()
	return more
}

// turns plans the shadow copies, and yields whenever a turn is over.
func (rp *replan) turns(yield func(struct{}) bool) {
	stopped := false
	pause := func() {
		if !stopped && rp.over() {
			stopped = !yield(struct{}{})
		}
	}
	for _, s := range rp.scopes {
		if rp.shadowOf(s).plan(rp, pause); stopped {
			return
		}
		pause()
	}
}

// Drop ends what Begin began, where nobody will End it: the planner is of no use afterwards, and what would plan panics. Drop may be called
// more than once.
func (p *Planner) Drop() {
	p.dropped = true
	if p.replan != nil && p.replan.stop != nil {
		p.replan.stop()
	}
}

// shadowOf is the shadow copy of a scope, made of it before the first step of the fast path.
func (rp *replan) shadowOf(s *scope) *shadow {
	d := rp.shadows[s]
	if d == nil {
		d = &shadow{scope: s.fork(s.key)}
		for inputs, v := range s.variants {
			d.variants[inputs] = &variant{v.Fork(d.hosts, v.Layer.Fork()), v.refs}
		}
		rp.shadows[s] = d
	}
	return d
}

func (d *shadow) plan(rp *replan, pause func()) {
	d.pause = pause
	d.apply(rp.in, rp.dirt)
	d.pause, d.planned = nil, true
	for _, f := range rp.fastSteps {
		d.planFastStep(f)
	}
}

// planFastStep plans endpoints of hosts, with the input of the fast path.
func (s *scope) planFastStep(f fastStep) {
	s.read(f.in)
	for h, t := range f.hosts {
		if t.Has(input.EDS) && s.hosts.Get(h) != nil {
			s.step.members[h] |= input.EDS
			if s.securesOtherwise(f.in, h) { // by other rules than those with which the fast path looked
				s.step.members[h] |= input.CDS
			}
		}
	}
	if len(s.step.members) > 0 {
		s.run(f.in)
	}
}

// replay has a step of the fast path planned on the shadow copies, too. It comes before the scopes that the step touches change. Where it
// touches none, shadow copies may see its hosts all the same: those that come, or become visible, with this change.
func (rp *replan) replay(now *mirror.Snapshot, hosts map[string]input.Types, touched map[*scope]bool) {
	if rp == nil || len(hosts) == 0 {
		return
	}
	f := fastStep{rp.in.Later(now), hosts}
	rp.fastSteps = append(rp.fastSteps, f)
	for s := range touched {
		if !rp.fromScratch(s) {
			rp.shadowOf(s)
		}
	}
	for _, d := range rp.shadows {
		if d.planned {
			d.planFastStep(f)
		}
	}
}

// End plans the rest and says who should have something else, in no order that means anything. It panics where Begin has not begun a change.
func (p *Planner) End() []Moved {
	p.must("End", p.replan != nil, "without a Begin")
	rp := p.replan
	if p.InBackground() {
		p.Step(func() bool { return false })
	} else {
		for _, s := range rp.scopes {
			s.apply(rp.in, rp.dirt)
		}
	}
	p.plans++
	p.replan, p.revision, p.replayed = nil, rp.in.Revision(), rp.fastSteps
	p.read(rp.in)
	for s, d := range rp.shadows {
		s.swap(d, p.input)
	}
	for _, s := range p.scopes {
		if rp.fromScratch(s) {
			p.scopes[s.key] = p.again(s)
		}
	}
	p.secrets.Plan(secret.Change{All: rp.everything, Secrets: rp.secrets, Referred: rp.referred, Labelled: rp.labelled, Granted: rp.granted})
	for key, wl := range p.workloads {
		if rp.everything || wl.Touched(rp.readers, rp.services, rp.ports, rp.served) || wl.ReportsOtherwise(rp.reports, rp.hosts) {
			next := &workload{inbound.New(p.input, key), wl.refs}
			next.Succeed(&wl.Layer, p.input.Sharing)
			p.workloads[key] = next
		}
	}
	for _, pl := range p.views {
		p.relink(pl, p.scopes[pl.view.Scope], p.workloads[pl.view.Workload])
	}
	rebound := p.rebind(rp.change)
	p.input.Sharing = nil
	return p.publish(rebound)
}

// swap puts a shadow copy in the place of the scope.
func (s *scope) swap(d *shadow, in *input.Input) {
	index, refs, renewed := s.index, s.refs, d.step.renewed
	*s = *d.scope
	s.index, s.refs, s.step = index, refs, newStep()
	for name := range renewed {
		index.set(name, s, s.hosts.Get(name) != nil)
	}
	s.read(in)
}

// again plans a scope from scratch.
func (p *Planner) again(s *scope) *scope {
	next := p.scopeFor(s.key)
	next.layer.Succeed(s.layer, p.input.Sharing)
	next.refs = s.refs
	next.names = make(map[string]*nametable.Table, len(s.names))
	for network := range s.names {
		next.names[network] = nametable.New(next.hosts, network)
	}
	for inputs, old := range s.variants {
		v := next.variantOf(inputs, p.input, p.replayed)
		v.Layer.Succeed(old.Layer, p.input.Sharing)
		v.refs = old.refs
	}
	p.index.retire(s)
	p.index.adopt(next)
	return next
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
