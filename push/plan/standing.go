package plan

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Standing describes the state of the delivery of a Secret to one proxy, for the page that explains the Secret. It
// contains no secret values, except for the bytes of the resource in Planned.
type Standing struct {
	Object  model.Key     // the record that provides the Secret; zero without such a record, and for a refused name
	Asked   bool          // the proxy subscribes to the Secret; false for names that the planner ignores
	Planned *xds.Resource // the Secret in the proxy's set; nil if the set has no such resource
	Asking  bool          // the proxy's right to the Secret is not known yet
	Opening bool          // the private key of the Secret's newest version is not decrypted yet
	Failed  int           // consecutive failed attempts to decrypt the private key; only Loop.Standing sets it
	Why     string        // reason why the Secret is withheld or its key could not be decrypted; may be empty
	Wanted  []string      // ids of all nodes in the proxy's namespace that subscribe to the Secret, sorted
}

// Standing returns the state of a Secret for a joined proxy. The argument name is the resource name of the Secret. If
// the proxy can never have a Secret of this name (secret.Refused), only Asked and Why are set. If the proxy does not
// subscribe to the Secret, only Object and Wanted are set. If the proxy subscribes to the Secret but does not get it,
// for example because it lacks the right, Why has the reason. Failed is always 0.
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

// Standing returns the result of Planner.Standing for a proxy of this loop. If Opening is true and an attempt to
// decrypt the private key has failed, it also sets Failed, and replaces Why by the last error. It waits for the loop's
// goroutine. The result is zero before the first plan and after the loop's end.
func (l *Loop) Standing(p *Proxy, name string) (s Standing) {
	l.inspect(func() {
		s = l.planner.Standing(p.Handle, name)
		if f := l.failed[s.Object]; s.Opening && f.err != nil {
			s.Failed, s.Why = f.times, f.err.Error()
		}
	})
	return s
}

// Closing returns the policies that select a proxy of this loop and cannot be enforced, so that the proxy refuses all
// traffic. It waits for the loop's goroutine. The result is nil before the first plan and after the loop's end.
func (l *Loop) Closing(p *Proxy) (policies []model.Key) {
	l.inspect(func() { policies = view.Closing(l.planner.Snapshot(), *p.Node) })
	return policies
}

// Lacking returns the names of the Secrets that a joined proxy subscribes to and that its set does not have, each with
// the reason. The result is nil if it is empty.
func (p *Planner) Lacking(h *Handle) (why map[string]string) {
	for _, name := range h.secrets.All() {
		if h.Set().Types[xds.Secret].Get(name) != nil {
			continue
		}
		_, reason := p.missing(h, name)
		if who := h.View().Secrets; reason == "" && p.secrets.Right(who).Known {
			reason = "the private key of " + name + " is not decrypted yet"
		} else if reason == "" {
			reason = "it is not known yet whether " + who.String() + " may list Secrets"
		}
		if why == nil {
			why = map[string]string{}
		}
		why[name] = reason
	}
	return why
}

// Lacking returns the result of Planner.Lacking for a proxy of this loop. A failed attempt to decrypt a private key is
// the reason if there is one. It waits for the loop's goroutine. The result is nil before the first plan and after the
// loop's end.
func (l *Loop) Lacking(p *Proxy) (why map[string]string) {
	l.inspect(func() {
		why = l.planner.Lacking(p.Handle)
		for name := range why {
			key := l.planner.secrets.Object(p.planned.Load().identity.Subscriptions, name)
			if f := l.failed[key]; f.err != nil {
				why[name] = fmt.Sprintf("the private key of %v cannot be decrypted: %v", key, f.err)
			}
		}
	})
	return why
}
