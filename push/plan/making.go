package plan

import (
	"iter"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
)

// What takes long is planned in pieces, beside what proxies have: what a change of configuration touches (replan), and the
// scope or variant that a joining proxy needs and that is not there (Joining). Scopes are made as shadows: copies, or new
// ones. Between two pieces endpoints have their turn; between two pieces of a join also changes and other joins. Each of
// these is something that the shadows follow later in the same order. So in the end they are what they would be had they
// been planned at once.

// making is scopes that are planned in pieces.
type making struct {
	base    *input.Input // that the shadows are planned with before they follow anything
	shadows map[view.Scope]*shadow
	since   []played // what was planned for proxies since, in order

	next func() (struct{}, bool) // plans until a turn is over, and says whether there is more: a coroutine; nil: it has not begun
	stop func()
	over func() bool // says whether the turn is over
	rest func() bool // lets others have their turn; false: the coroutine is to end
}

func makingAt(in *input.Input, since []played) making {
	return making{base: in, shadows: map[view.Scope]*shadow{}, since: since[:len(since):len(since)]}
}

// played is a change, or, without dirt, endpoints that the fast path has planned.
type played struct {
	in    *input.Input
	dirt  *dirt
	hosts map[string]input.Types
}

// shadow is a scope as it will be.
type shadow struct {
	*scope
	of   *scope // whose place it takes, as it is or changed; nil: it is new
	done int    // of making.since, that it has followed
	busy bool   // it is being planned, or still has to be
}

// dropped is the panic that ends a coroutine.
type dropped struct{}

// start makes the coroutine, which plans nothing before advance.
func (m *making) start(plan func()) {
	m.next, m.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if fault := recover(); fault != nil && fault != any(dropped{}) {
				panic(fault)
			}
		}()
		m.rest = func() bool { return yield(struct{}{}) }
		plan()
	})
}

// advance plans until over says that the turn is, which is asked after every piece. False: all is made.
func (m *making) advance(over func() bool) (more bool) {
	m.over = over
	_, more = m.next()
	return more
}

// drop ends what has begun.
func (m *making) drop() {
	if m.stop != nil {
		m.stop()
	}
}

// pause is called between two pieces.
func (m *making) pause() {
	if m.over() && !m.rest() {
		panic(dropped{})
	}
}

// work plans something on a shadow, and then what was planned for proxies meanwhile: changes in pieces, too.
func (m *making) work(d *shadow, f func()) {
	d.busy = true
	f()
	m.follow(d)
	d.busy = false
}

// follow plans on a shadow what was planned for proxies. Endpoints are planned in one piece, as they were for proxies.
func (m *making) follow(d *shadow) {
	for d.done < len(m.since) {
		u := m.since[d.done]
		d.done++
		if d.pauses(nil); u.dirt != nil {
			d.pauses(m.pause)
		}
		d.follow(u)
		d.pauses(m.pause)
	}
}

// fresh makes a new scope, cloned from the template where there is one.
func (m *making) fresh(p *Planner, key view.Scope, template *scope) *shadow {
	d := &shadow{}
	m.shadows[key] = d
	m.work(d, func() { d.scope = p.scopeLike(template, m.base, key, m.pause) })
	return d
}

// vary makes the variant of a shadow for proxies with these inputs, unless it is there.
func (m *making) vary(d *shadow, inputs view.Inputs) {
	if inputs != (view.Inputs{}) && d.variants[inputs] == nil {
		m.work(d, func() {
			in, since := m.base, m.since[:d.done]
			for i, u := range since {
				if u.dirt != nil { // the shadow has followed that change
					in, since = u.in, m.since[i+1:d.done]
				}
			}
			d.variantOf(inputs, in, since)
		})
	}
}

// follow plans what proxies have been given.
func (s *scope) follow(u played) {
	if u.dirt != nil {
		s.apply(u.in, u.dirt)
		return
	}
	s.read(u.in)
	for h, t := range u.hosts {
		if t.Has(input.EDS) && s.hosts.Get(h) != nil {
			s.step.members[h] |= input.EDS
			if s.securesOtherwise(u.in, h) { // by other rules than those with which the fast path looked
				s.step.members[h] |= input.CDS
			}
		}
	}
	if len(s.step.members) > 0 {
		s.run(u.in)
	}
}

// replay has what is being made follow a step of the fast path. It comes before the scopes that the step touches change.
// Where it touches none, shadows may see its hosts all the same: those that come, or become visible, with a change.
func (p *Planner) replay(now *mirror.Snapshot, in *input.Input, hosts map[string]input.Types, touched map[*scope]bool) {
	if len(hosts) == 0 {
		return
	}
	if p.replan != nil {
		p.replan.replay(played{in: p.replan.in.Later(now), hosts: hosts}, touched)
		return
	}
	u := played{in: in, hosts: hosts}
	if p.input != in {
		p.replayed = append(p.replayed, u)
	}
	for j := range p.joining {
		j.since = append(j.since, u)
	}
}

// sweep drops what was made and is not used.
func (p *Planner) sweep(m *making) {
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

// sweepInbound drops a workload that was made and is not used.
func (p *Planner) sweepInbound(key view.Workload) {
	if wl := p.workloads[key]; wl != nil && wl.refs == 0 {
		delete(p.workloads, key)
	}
}
