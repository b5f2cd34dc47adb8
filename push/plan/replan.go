package plan

import (
	"iter"
	"maps"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A change of much configuration takes long to plan, and endpoints of others must not wait for it. So it is planned in pieces
// (Begin, Step, End), and, where it is large, apart: on drafts of the scopes. What proxies should have, and what Flip
// plans meanwhile, is what stands; each flip is planned on the drafts again, in the same order, so that scopes that come to
// the same keep sharing it; on the one that is under way once it is done. End puts the drafts in the place of what stood, all
// at once.

// backgroundFrom is how large a change is planned apart: hosts that are touched, times the scopes that may see them. One takes some
// 20 to 50 us.
const backgroundFrom = 500

// replan is a change that is being planned.
type replan struct {
	*change
	scopes    []*scope // to be planned, but for those that are planned from nothing
	shadows   map[*scope]*shadow
	fastSteps []fastStep

	// next goes on with the drafts until a turn is over, and says whether that is all of them; stop ends it. A coroutine: a scope
	// may stop between any two hosts. Both nil: nothing is planned apart.
	next func() (struct{}, bool)
	stop func()
	over func() bool // says whether the turn is over
}

// shadow is a scope as it will be.
type shadow struct {
	*scope
	planned bool
	renewed map[string]*host // the keys: hosts that may have come or gone
}

// flips is one step of the fast lane: hosts, and the world in which they are planned on drafts.
type fastStep struct {
	input *input
	hosts map[string]types
}

// Begin starts to plan what a change touches. Until End only Step, Apart and, where it is planned apart, Flip may be called.
func (p *Planner) Begin(c mirror.Change) {
	relabelled := map[model.Key]bool{}
	for _, e := range c.Edits {
		p.input.index.apply(e)
		relabelled[e.Key()] = p.keys.Apply(e)
	}
	ch := &change{dirt: newDirt(), input: p.input.at(c.New), was: p.input.root(), relabelled: relabelled}
	ch.collect(p.table, c.Edits)
	rp := &replan{change: ch, shadows: map[*scope]*shadow{}}
	for _, s := range p.scopes {
		if !rp.fromNothing(s) {
			rp.scopes = append(rp.scopes, s)
		}
	}
	if ch.weight()*len(rp.scopes) >= p.backgroundFrom {
		rp.next, rp.stop = iter.Pull(rp.turns)
	}
	p.replan = rp
}

// weight is about how many hosts are touched in a scope.
func (d *dirt) weight() int {
	const wildcard = 100 // hosts that one covers
	return len(d.hosts) + len(d.members) + len(d.pulls) + wildcard*len(d.patterns)
}

// fromNothing says whether a scope is planned from nothing, at the end.
func (rp *replan) fromNothing(s *scope) bool { return rp.everything || s.reads(rp.readers) }

// InBackground says whether a change is being planned apart: Flip may come between two steps.
func (p *Planner) InBackground() bool { return p.replan != nil && p.replan.next != nil }

// Step goes on with a change that is planned apart, until over says that the turn is, which is asked after every host. False:
// all drafts are planned, and End has a little left to do.
func (p *Planner) Step(over func() bool) (more bool) {
	p.replan.over = over
	_, more = p.replan.next()
	return more
}

// turns plans the drafts, and yields whenever a turn is over.
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

// Drop ends what Begin began, where nobody will End it: the planner is of no use afterwards.
func (p *Planner) Drop() {
	if p.replan != nil && p.replan.stop != nil {
		p.replan.stop()
	}
}

// shadow is the draft of a scope, made of it as it stands before the first flip.
func (rp *replan) shadowOf(s *scope) *shadow {
	d := rp.shadows[s]
	if d == nil {
		d = &shadow{scope: s.fork()}
		for proxyInputs, f := range s.variants {
			copied := *f
			copied.specs = maps.Clone(f.specs)
			d.variants[proxyInputs] = &copied
		}
		rp.shadows[s] = d
	}
	return d
}

func (d *shadow) plan(rp *replan, pause func()) {
	d.renewed, d.pause = d.step.renewed, pause
	d.apply(rp.input, rp.dirt)
	d.pause, d.planned = nil, true
	for _, f := range rp.fastSteps {
		d.planFastStep(f)
	}
}

// flip plans endpoints of hosts, in the world of the flips.
func (s *scope) planFastStep(f fastStep) {
	s.input = f.input
	for h, t := range f.hosts {
		if t.has(eds) && s.hosts.get(h) != nil {
			s.step.members[h] |= eds
		}
	}
	if len(s.step.members) > 0 {
		s.run(f.input)
	}
}

// flip has a step of the fast lane planned on the drafts, too. It comes before the scopes that the step touches change.
func (rp *replan) replay(now *mirror.Snapshot, hosts map[string]types, touched map[*scope]bool) {
	if rp == nil || len(touched) == 0 {
		return
	}
	f := fastStep{rp.input.later(now), hosts}
	rp.fastSteps = append(rp.fastSteps, f)
	for s := range touched {
		if !rp.fromNothing(s) {
			rp.shadowOf(s)
		}
	}
	for _, d := range rp.shadows {
		if d.planned {
			d.planFastStep(f)
		}
	}
}

// End plans the rest and says who should have something else, in no order that means anything.
func (p *Planner) End() []Moved {
	rp := p.replan
	if p.InBackground() {
		p.Step(func() bool { return false })
	} else {
		for _, s := range rp.scopes {
			s.apply(rp.input, rp.dirt)
		}
	}
	p.plans++
	p.replan, p.input, p.revision, p.replayed = nil, rp.input, rp.input.Revision(), rp.fastSteps
	for s, d := range rp.shadows {
		s.swap(d, p.input)
	}
	for _, s := range p.scopes {
		if rp.fromNothing(s) {
			p.scopes[s.key] = p.again(s)
		}
	}
	p.applySecrets(rp.dirt)
	for key, wl := range p.workloads {
		if rp.everything || wl.touched(rp.dirt) {
			next := newWorkload(p.input, key)
			next.succeed(&wl.layer, p.input.shared)
			next.refs = wl.refs
			p.workloads[key] = next
		}
	}
	for _, pl := range p.views {
		pl.relink(p.scopes[pl.view.Scope], p.workloads[pl.view.Workload])
	}
	rebound := p.rebind(rp.views)
	p.input.shared = nil
	return p.publish(rebound)
}

// swap puts a draft in the place of the scope.
func (s *scope) swap(d *shadow, w *input) {
	for name := range d.renewed {
		switch was, is := s.hosts.get(name) != nil, d.hosts.get(name) != nil; {
		case is && !was:
			s.seen.add(name, s)
		case was && !is:
			s.seen.remove(name, s)
		}
	}
	seen, refs := s.seen, s.refs
	*s = *d.scope
	s.input, s.seen, s.refs = w, seen, refs
}

// again plans a scope from nothing.
func (p *Planner) again(s *scope) *scope {
	next := p.scopeFor(s.key)
	next.succeed(&s.layer, p.input.shared)
	next.refs = s.refs
	for proxyInputs, old := range s.variants {
		f := next.variantOf(proxyInputs)
		f.succeed(&old.layer, p.input.shared)
		f.refs = old.refs
	}
	p.seen.retire(s)
	p.seen.adopt(next)
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
