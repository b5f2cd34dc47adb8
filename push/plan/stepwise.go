package plan

import (
	"iter"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
)

// A scope has the outbound resources of a group of proxies. A variant has the differing resources of proxies with
// certain inputs. Long work is planned in pieces beside the published plan. Such work is either a change of the
// configuration (replan), or a scope or variant that a joining proxy lacks (Joining). Scopes are planned as shadows,
// which are unpublished copies or new scopes. The fast path, which plans endpoints, may run between two pieces. Changes
// and other joins may run between two pieces of a join. The shadows follow each of these steps later, in the same
// order. In the end, the shadows are equal to scopes that were planned at once.

// stepwise plans shadows of scopes in pieces.
type stepwise struct {
	base    *input.Input // the input with which shadows are planned before they follow the steps in since
	shadows map[view.Scope]*shadow
	since   []plannedStep // steps planned on the published scopes since base, in order

	// next resumes the coroutine, which plans until its turn (the time for which it may plan) is over. The second
	// result of next reports whether work is left. The field is nil before start.
	next  func() (struct{}, bool)
	stop  func()      // ends the coroutine
	over  func() bool // reports whether the turn is over
	yield func() bool // ends the turn; the result is false if the coroutine has to end
}

// newStepwise returns a stepwise without shadows. The parameter in is its base. The parameter since has the steps that
// were planned after this base.
func newStepwise(in *input.Input, since []plannedStep) stepwise {
	return stepwise{base: in, shadows: map[view.Scope]*shadow{}, since: since[:len(since):len(since)]}
}

// plannedStep is a change of configuration or a step of the fast path. For a change, affected is not nil. For a step of
// the fast path, affected is nil, and hosts has the hosts whose endpoints the step plans.
type plannedStep struct {
	in       *input.Input
	affected *affected
	hosts    map[string]input.Types
}

// shadow is a scope that is planned in pieces and not published yet.
type shadow struct {
	*scope
	of   *scope // the scope that the shadow replaces; nil if the shadow is a new scope
	done int    // the number of steps of stepwise.since that the shadow has followed
	busy bool   // the shadow is being planned, or planning has not begun
}

// dropped is the panic value that ends a coroutine.
type dropped struct{}

// start creates the coroutine, which begins at the first call of advance.
func (m *stepwise) start(plan func()) {
	m.next, m.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if fault := recover(); fault != nil && fault != any(dropped{}) {
				panic(fault)
			}
		}()
		m.yield = func() bool { return yield(struct{}{}) }
		plan()
	})
}

// advance plans until the function in the parameter over returns true. It calls this function after every piece. The
// result is false if no work is left.
func (m *stepwise) advance(over func() bool) (more bool) {
	m.over = over
	_, more = m.next()
	return more
}

// drop ends the coroutine, if it was started.
func (m *stepwise) drop() {
	if m.stop != nil {
		m.stop()
	}
}

// pause ends the turn if it is over. It is called between two pieces.
func (m *stepwise) pause() {
	if m.over() && !m.yield() {
		panic(dropped{})
	}
}

// work runs f, which plans a shadow. After that, the shadow follows the steps that were planned meanwhile.
func (m *stepwise) work(d *shadow, f func()) {
	d.busy = true
	f()
	m.follow(d)
	d.busy = false
}

// follow plans on a shadow the steps that it has not followed yet. Steps of the fast path are planned in one piece, as
// on published scopes.
func (m *stepwise) follow(d *shadow) {
	for d.done < len(m.since) {
		u := m.since[d.done]
		d.done++
		if d.pauses(nil); u.affected != nil {
			d.pauses(m.pause)
		}
		d.follow(u)
		d.pauses(m.pause)
	}
}

// fresh plans an additional scope as a shadow. The scope begins as a clone of the template. If the template is nil or
// differs too much, the scope is planned from scratch.
func (m *stepwise) fresh(p *Planner, key view.Scope, template *scope) *shadow {
	d := &shadow{}
	m.shadows[key] = d
	m.work(d, func() { d.scope = p.scopeLike(template, m.base, key, m.pause) })
	return d
}

// vary plans the variant of a shadow for the given inputs, unless the variant exists or the inputs are zero.
func (m *stepwise) vary(d *shadow, inputs view.Inputs) {
	if inputs != (view.Inputs{}) && d.variants[inputs] == nil {
		m.work(d, func() {
			in, since := m.base, m.since[:d.done]
			for i, u := range since {
				if u.affected != nil { // the shadow has followed that change
					in, since = u.in, m.since[i+1:d.done]
				}
			}
			d.variantOf(inputs, in, since)
		})
	}
}

// follow plans a step on the scope.
func (s *scope) follow(u plannedStep) {
	if u.affected != nil {
		s.apply(u.in, u.affected)
		return
	}
	s.read(u.in)
	for h, t := range u.hosts {
		if t.Has(input.EDS) && s.hosts.Get(h) != nil {
			s.step.members[h] |= input.EDS
			if s.securesOtherwise(u.in, h) { // the fast path may have read other rules
				s.step.members[h] |= input.CDS
			}
		}
	}
	if len(s.step.members) > 0 {
		s.run(u.in)
	}
}

// replay adds a step of the fast path to the work that is being planned in pieces. That work is a change of the
// configuration or, without such a change, the joins. The caller must call replay before the touched scopes change. A
// step that touches no scope is added too, because a shadow may contain its hosts.
func (p *Planner) replay(now *mirror.Snapshot, in *input.Input, hosts map[string]input.Types, touched map[*scope]bool) {
	if len(hosts) == 0 {
		return
	}
	if p.replan != nil {
		p.replan.replay(plannedStep{in: p.replan.in.Later(now), hosts: hosts}, touched)
		return
	}
	u := plannedStep{in: in, hosts: hosts}
	if p.input != in {
		p.fastSteps = append(p.fastSteps, u)
	}
	for j := range p.joining {
		j.since = append(j.since, u)
	}
}

// sweep drops the planned scopes and variants that no view (group of proxies with equal configuration) uses. It
// considers only scopes with a shadow in m.
func (p *Planner) sweep(m *stepwise) {
	for key, d := range m.shadows {
		s := p.scopes[key]
		switch {
		case s == nil:
		case s.refs == 0:
			delete(p.scopes, key)
			p.index.retire(s)
		default:
			for inputs := range d.variants {
				if v := s.variants[inputs]; v != nil && v.refs == 0 {
					s.forget(inputs)
				}
			}
		}
	}
}

// sweepInbound drops the plan of a workload that no view uses.
func (p *Planner) sweepInbound(key view.Workload) {
	if wl := p.workloads[key]; wl != nil && wl.refs == 0 {
		delete(p.workloads, key)
	}
}
