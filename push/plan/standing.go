package plan

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing describes the progress of a Secret to one proxy, for the page that explains it. It contains no secret
// values.
type Standing struct {
	Object  model.Key     // the record that provides it; zero if no record does, or if the proxy may not have it
	Asked   bool          // the proxy subscribes to it
	Planned *xds.Resource // the resource in the proxy's set; nil if the set has no such resource
	Asking  bool          // the proxy's right to it is not known yet
	Opening bool          // its private key, in its newest version, is not opened yet
	Failed  int           // consecutive failed attempts to open it
	Why     string        // why it is withheld, or could not be opened
	Wanted  []string      // ids of the nodes in the same namespace that subscribe to it, sorted
}

// Standing returns the progress of the Secret with a resource name to a proxy.
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

// Standing is Planner.Standing for a proxy of this loop, with the failed attempts to open the Secret.
func (l *Loop) Standing(p *Proxy, name string) (s Standing) {
	l.inspect(func() {
		s = l.planner.Standing(p.Handle, name)
		if f := l.failed[s.Object]; s.Opening && f.err != nil {
			s.Failed, s.Why = f.times, f.err.Error()
		}
	})
	return s
}
