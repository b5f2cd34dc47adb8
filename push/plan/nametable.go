package plan

import (
	"context"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
)

// planNames plans the names of the hosts that the step (one change of the scope) touches, in all name tables of the
// scope. A scope has one name table for each network whose proxies have requested one.
func (s *scope) planNames() {
	for _, table := range s.names {
		for name := range s.step.hosts {
			table.Plan(name, s.hosts)
		}
		for name, what := range s.step.members {
			if what.Has(input.LDS) { // the fast path alone changes no names
				table.Plan(name, s.hosts)
			}
		}
		table.Commit()
	}
}

// AskNames records that a joined proxy requests the name table of its agent (for DNS). From then on the scope of the
// proxy (its hosts) has a name table for the proxy's network. If the set of the proxy's view changed, the result lists
// all proxies of the view, each with the path Slow. The list is nil for an unknown handle, for a repeated call, and if
// the view has the table already. AskNames panics while a change is being planned, and after Drop.
func (p *Planner) AskNames(h *Handle) (moved []Moved) {
	p.idle("AskNames")
	if _, joined := p.handles[h]; !joined || h.names {
		return nil
	}
	pl := h.planned.Load()
	p.input.Tested(pl.view.Scope)
	h.names = true
	if p.addNames(pl) {
		for h := range pl.handles {
			moved = append(moved, Moved{h, Slow})
		}
	}
	return moved
}

// addNames adds the name table for the view's network to a view, and publishes the view's set. It reports whether the
// set changed.
func (p *Planner) addNames(pl *planned) bool { return p.planNamesFor(pl) && pl.compose(p) }

// planNamesFor plans the name table for the view's network, unless the scope has this table. The method compose
// publishes the table. The result is false if the view had a name table before.
func (p *Planner) planNamesFor(pl *planned) bool {
	if pl.names {
		return false
	}
	s, network := pl.scope, pl.view.Inputs.Network
	if s.names[network] == nil {
		if s.names == nil {
			s.names = map[string]*nametable.Table{}
		}
		s.names[network] = nametable.New(s.hosts, network)
	}
	pl.names = true
	return true
}

// Names returns the name table for the proxy's agent, or nil if the table is not planned yet. The first call that
// returns nil requests the table. Once the table is planned, the function moved of Join is called. Names never blocks.
// The manifest is immutable.
func (p *Proxy) Names() *manifest.Manifest {
	if m := p.Set().Names; m != nil {
		return m
	}
	if p.asked.CompareAndSwap(false, true) {
		go func() {
			// An error means that the loop has ended or that the planner has panicked. After a panic, the next planner
			// plans the names.
			_ = p.loop.call(context.Background(), func() {
				if _, here := p.loop.proxies[p.Handle]; here && p.loop.planner != nil {
					p.loop.notify(p.loop.planner.AskNames(p.Handle))
				}
			})
		}()
	}
	return nil
}
