package plan

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing describes the progress of a Secret to one proxy, for the page that explains the Secret. It contains no
// secret values, except for the bytes of the resource in Planned.
type Standing struct {
	Object  model.Key     // the record that provides the Secret; zero without such a record, or if it is refused
	Asked   bool          // the proxy subscribes to the Secret
	Planned *xds.Resource // the Secret in the proxy's set; nil if the set has no such resource
	Asking  bool          // the proxy's right to the Secret is not known yet
	Opening bool          // the private key in its newest version is not opened yet
	Failed  int           // number of consecutive failed attempts to open the private key; Planner leaves it 0
	Why     string        // the reason if the Secret is withheld, or if its key could not be opened
	Wanted  []string      // ids of all nodes in the namespace that subscribe to the Secret, sorted
}

// Standing returns the progress of a Secret to a joined proxy. name is the resource name of the Secret.
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

// Standing returns the result of Planner.Standing for a proxy of this loop, with the failed attempts to open the
// Secret. It is zero without a plan and after the loop's end.
func (l *Loop) Standing(p *Proxy, name string) (s Standing) {
	l.inspect(func() {
		s = l.planner.Standing(p.Handle, name)
		if f := l.failed[s.Object]; s.Opening && f.err != nil {
			s.Failed, s.Why = f.times, f.err.Error()
		}
	})
	return s
}
