package plan

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// peered marks hosts to be planned again: the hosts of services whose endpoints the PeerAuthentication may select.
// Clusters for Envoy depend only on policies that disable mTLS, and count STRICT and PERMISSIVE as the same mode. If no
// such policy applies to a service before or after the edit, peered marks its hosts only for gRPC clients.
func peered(c *change, t input.Types, e mirror.Edit) {
	edited := slices.ContainsFunc(records(e), func(r model.Record) bool { return input.DisablesMTLS(r.(*model.Policy)) })
	mark := func(r model.Record) {
		to := c.demands
		if edited || c.in.Peers(r.Meta().Key.Namespace).Len() > 0 {
			to = c.hosts
		}
		for _, h := range model.HostsOf(r) {
			to[h] |= t
		}
	}
	namespace := c.reach(e)
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		all := c.in.In(kind, namespace)
		if namespace == "*" {
			all = c.in.All(kind)
		}
		for r := range all {
			mark(r)
		}
	}
}

// deniedHosts marks the hosts whose clusters name an identity that the edit denies or admits again.
func deniedHosts(c *change, t input.Types, e mirror.Edit) {
	was, is := input.DeniedBy(e.Old), input.DeniedBy(e.New)
	other := func(account string) bool { return !slices.Equal(was[account], is[account]) }
	if len(was)+len(is) == 0 {
		return
	}
	mark := func(r model.Record) {
		for _, h := range model.HostsOf(r) {
			c.hosts[h] |= t
			if input.IsWildcard(h) {
				c.patterns[h] |= t
			}
		}
	}
	for r := range c.in.All(model.KindEndpoints) {
		for _, one := range r.(*model.Endpoints).Spec.GetEndpoints() {
			if other(cmp.Or(one.GetNamespace(), r.Meta().Key.Namespace) + "/" + one.GetServiceAccount()) {
				mark(r)
				break
			}
		}
	}
	denied := func(name string) bool { return other(input.AccountOf(name)) }
	for r := range c.in.All(model.KindServiceEntry) {
		if slices.ContainsFunc(r.(*model.Service).Spec.GetSubjectAltNames(), denied) {
			mark(r)
		}
	}
	for r := range c.in.All(model.KindDestinationRule) {
		if slices.ContainsFunc(input.NamesOf(r.(*model.DestinationRule)), denied) {
			mark(r)
		}
	}
}
