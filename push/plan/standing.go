package plan

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing is how far a Secret is on its way to one proxy, for the page that explains it. Nothing in it is secret.
type Standing struct {
	Object  model.Key     // that it is made of; zero: there is none, or not for this proxy
	Asked   bool          // the proxy wants it
	Planned *xds.Resource // what the proxy should have; nil: nothing
	Asking  bool          // the authoriser has not said yet whether the proxy may have it
	Opening bool          // its private key, or that of its newest version, is not opened yet
	Failed  int           // attempts to open it, in a row
	Why     string        // it is withheld, or could not be opened so far
	Wanted  []string      // proxies of the same namespace that want it: ids of their nodes, sorted
}

// Standing says how far a Secret is on its way to a proxy, by the resource name that proxies ask for.
func (p *Planner) Standing(h *Handle, name string) (s Standing) {
	pl := h.planned.Load()
	s.Asked = h.secrets.Has(name)
	if _, s.Why = p.refused(h, name); s.Why != "" {
		return s
	}
	s.Object = p.secrets.Object(pl.identity.Subscriptions, name)
	for other := range p.handles {
		if other.secrets.Has(name) && other.View().Secrets.Namespace == pl.view.Secrets.Namespace {
			s.Wanted = append(s.Wanted, other.Node.ID)
		}
	}
	slices.Sort(s.Wanted)
	if !s.Asked {
		return s
	}
	s.Planned = h.Set().Types[xds.Secret].Get(name)
	_, s.Why = p.missing(h, name)
	s.Asking = !p.secrets.Right(pl.view.Secrets).Known && h.Set().Types[xds.Secret].Pending(name)
	s.Opening = p.secrets.Opening(pl.identity.Subscriptions, name)
	return s
}

// Standing is Planner.Standing for a proxy of this loop, with what was tried to open it.
func (l *Loop) Standing(p *Proxy, name string) (s Standing) {
	l.look(func() {
		s = l.planner.Standing(p.Handle, name)
		if f := l.failed[s.Object]; s.Opening && f.err != nil {
			s.Failed, s.Why = f.times, f.err.Error()
		}
	})
	return s
}
