package plan

import (
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// routedHosts marks hosts to be planned again: the hosts of VirtualServices that route to the record's hosts, or to
// their aliases.
func routedHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range c.withAliases(model.HostsOf(r)) {
			c.in.RoutesTo(h, func(vs *model.VirtualService) {
				for _, to := range vs.Spec.GetHosts() {
					c.hosts[to] |= t
					if input.IsWildcard(to) {
						c.patterns[to] |= t
					}
				}
				c.connected(vs, t)
			})
		}
	}
}

// namedBeside marks the other hosts of VirtualServices that name the record's hosts.
func namedBeside(c *change, t input.Types, e mirror.Edit) {
	for h := range hostsOf(e) {
		for vs := range c.in.ByHost(model.KindVirtualService, h) {
			for _, other := range model.HostsOf(vs) {
				c.hosts[other] |= t
			}
		}
	}
}

// coveringHosts marks all hosts of VirtualServices with a matching wildcard. A wildcard matches if it covers one of the
// record's hosts, or if one of the record's hosts covers it.
func coveringHosts(c *change, t input.Types, e mirror.Edit) {
	marked := map[*model.VirtualService]bool{}
	for h := range hostsOf(e) {
		for _, vs := range c.in.RoutingWildcards(h) {
			if marked[vs] {
				continue
			}
			marked[vs] = true
			for _, named := range vs.Spec.GetHosts() {
				c.hosts[named] |= t
			}
		}
	}
}

// connectedHosts marks the hosts of a VirtualService with tcp or tls rules. It also marks the services with wildcard
// hosts that cover these hosts, since the rules apply to such services too. For a VirtualService with only http rules,
// it marks nothing, since listeners do not depend on http rules.
func connectedHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		vs := r.(*model.VirtualService)
		if !virtualservice.Connects(vs) {
			continue
		}
		namedHosts(c, t, mirror.Edit{New: vs})
		c.connected(vs, t)
	}
}

// connected marks the wildcard services that cover a host of a VirtualService with tcp or tls rules.
func (c *change) connected(vs *model.VirtualService, t input.Types) {
	if !virtualservice.Connects(vs) {
		return
	}
	for _, h := range vs.Spec.GetHosts() {
		for pattern := range model.Wildcards(h) {
			for range c.in.ByHost(model.KindServiceEntry, pattern) { // Services of Kubernetes have no wildcard hosts
				c.hosts[pattern] |= t
			}
		}
	}
}

// withAliases returns the hosts, and then their aliases.
func (c *change) withAliases(hosts []string) []string {
	all := hosts[:len(hosts):len(hosts)]
	for _, h := range hosts {
		all = slices.AppendSeq(all, c.in.Index.Aliases(h))
	}
	return all
}

// aliased marks the target of the record if the record is an alias, before or after the edit. Several records may
// define the record's host. So aliased also marks the targets that other records state for this host.
func aliased(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		if of := r.(*model.Service).Spec.GetAliasFor(); of != "" {
			c.hosts[of] |= t
			for further := range c.in.AliasTargets(of) {
				c.hosts[further] |= t
			}
		}
		for _, h := range model.HostsOf(r) {
			for of := range c.in.AliasTargets(h) {
				c.hosts[of] |= t
			}
		}
	}
}
