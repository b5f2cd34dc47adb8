package plan

import (
	"context"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
)

// planNames plans the names of the hosts of the step, for the networks of which any proxy asks for the name table.
func (s *scope) planNames() {
	for _, table := range s.names {
		for name := range s.step.hosts {
			table.Plan(name, s.hosts)
		}
		for name, what := range s.step.members {
			if what.Has(input.LDS) { // more than the fast path
				table.Plan(name, s.hosts)
			}
		}
		table.Commit()
	}
}

// AskNames says that a proxy asks for the name table. From now on its scope has one for the network of the proxy.
func (p *Planner) AskNames(h *Handle) (moved []Moved) {
	p.idle("AskNames")
	if _, joined := p.handles[h]; !joined || h.names {
		return nil
	}
	pl := h.planned.Load()
	p.input.Tested(pl.view.Scope)
	h.names = true
	if p.giveNames(pl) {
		for h := range pl.handles {
			moved = append(moved, Moved{h, Slow})
		}
	}
	return moved
}

// giveNames gives a view the name table that its scope has for its network, and says whether it had none.
func (p *Planner) giveNames(pl *planned) bool {
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
	return pl.compose(p)
}

// Names is the name table that agents ask for; nil: it is not planned yet. The first call has it planned, and moved is called then. Safe for
// any goroutine; it never blocks.
func (p *Proxy) Names() *manifest.Manifest {
	if m := p.Set().Names; m != nil {
		return m
	}
	if p.asked.CompareAndSwap(false, true) {
		go func() {
			_ = p.loop.call(context.Background(), func() { // an ended loop has no proxies; where it panics the next planner plans them
				if _, here := p.loop.proxies[p.Handle]; here && p.loop.planner != nil {
					p.loop.notify(p.loop.planner.AskNames(p.Handle))
				}
			})
		}()
	}
	return nil
}
