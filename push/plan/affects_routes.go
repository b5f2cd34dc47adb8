package plan

import (
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// routedHosts: the hosts of VirtualServices that send to the record's hosts, or to other names of these.
func routedHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range c.withAliases(input.HostsOf(r)) {
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

// namedBeside: the other hosts of VirtualServices that name the record's hosts.
func namedBeside(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for vs := range c.in.ByHost(model.KindVirtualService, h) {
				for _, other := range input.HostsOf(vs) {
					c.hosts[other] |= t
				}
			}
		}
	}
}

// coveringHosts: the hosts of VirtualServices of which one is a wildcard that covers one of the record's hosts, or that one of these covers.
func coveringHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			for _, vs := range c.in.Routing(h) {
				covers := func(named string) bool {
					return input.IsWildcard(named) && (input.Covers(named, h) || input.Covers(h, named))
				}
				if !slices.ContainsFunc(vs.Spec.GetHosts(), covers) {
					continue
				}
				for _, named := range vs.Spec.GetHosts() {
					c.hosts[named] |= t
				}
			}
		}
	}
}

// connectedHosts: the hosts of records with tcp or tls rules, and those of services that are wildcards and cover these, which have the rules too. Rules for requests are in no
// listener: an edit of a record that has others neither before nor after leaves the listeners alone.
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

func (c *change) connected(vs *model.VirtualService, t input.Types) {
	if !virtualservice.Connects(vs) {
		return
	}
	for _, h := range vs.Spec.GetHosts() {
		for pattern := range model.Wildcards(h) {
			for range c.in.ByHost(model.KindServiceEntry, pattern) { // no other kind has hosts that are wildcards
				c.hosts[pattern] |= t
			}
		}
	}
}

// withAliases are hosts and their other names.
func (c *change) withAliases(hosts []string) []string {
	all := hosts[:len(hosts):len(hosts)]
	for _, h := range hosts {
		all = slices.AppendSeq(all, c.in.Index.Aliases(h))
	}
	return all
}

// aliased: the hosts that the record is another name of, or was; and those that its host would be another name of, were it no host of its own.
func aliased(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		if of := r.(*model.Service).Spec.GetAliasFor(); of != "" {
			c.hosts[of] |= t
			for further := range c.in.AliasTargets(of) {
				c.hosts[further] |= t
			}
		}
		for _, h := range input.HostsOf(r) {
			for of := range c.in.AliasTargets(h) {
				c.hosts[of] |= t
			}
		}
	}
}
