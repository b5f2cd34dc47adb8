package host

import (
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/model"
)

// Routed is the virtual host of one host in one route configuration.
type Routed struct {
	Config  string        // name of the route configuration
	Spec    vhost.Spec    // the inputs of the virtual host
	Servers []model.Place // servers of Gateways that serve the host, in order of precedence; empty for other proxies
}

// Claim is a VirtualService whose http rules may decide the routes to a host. Table.Claims returns Claims.
type Claim struct {
	VirtualService *model.VirtualService
	Name           string // element of spec.hosts: the host, or a wildcard that covers it
	// Reach is the rank of the VirtualService's exportTo; lower ranks precede. It is 2 if the VirtualService is
	// exported to all namespaces. Otherwise it is 0 for a VirtualService in the proxies' namespace, and 1 for one in
	// any other namespace.
	Reach int
}

// Claims returns the VirtualServices that have http rules and list the host or a wildcard that covers it. Each applies
// to one of Form.Gateways and is exported to the namespace of the table's proxies. Each overlaps at least one of the
// table's Imports (the hosts that an egress listener imports). VirtualServices that list the host come first. Then come
// VirtualServices that list a wildcard, the longest wildcard first. VirtualServices for the same name are sorted by
// precedence (by Claim.Reach and then by age). A VirtualService that lists several of these names occurs once for each
// name.
func (t *Table) Claims(host string) (all []Claim) {
	t.in.Index.Covering(model.KindVirtualService, host, func(pattern string) bool {
		at := len(all)
		for r := range t.in.ByHost(model.KindVirtualService, pattern) {
			if vs := r.(*model.VirtualService); len(vs.Spec.GetHttp()) > 0 && t.claims(vs) {
				all = append(all, Claim{vs, pattern, t.exportRank(vs)})
			}
		}
		slices.SortFunc(all[at:], func(a, b Claim) int { return t.precedes(a.VirtualService, b.VirtualService) })
		return true
	})
	return all
}

// claims reports whether a VirtualService applies to one of Form.Gateways, is exported to the proxies' namespace, and
// overlaps at least one of the table's Imports.
func (t *Table) claims(vs *model.VirtualService) bool {
	return slices.ContainsFunc(t.form.Gateways, func(gateway string) bool { return t.sees(vs, gateway) }) &&
		slices.ContainsFunc(t.imports, func(im *Imports) bool { return t.overlap(im, vs) })
}

// Connected returns the VirtualServices whose tcp and tls rules apply to connections to a host, at any of Form.Gateways
// and for any of the table's Imports. Each occurs once. They are sorted by precedence.
func (t *Table) Connected(host string) (all []*model.VirtualService) {
	for _, gateway := range t.form.Gateways {
		for _, im := range t.imports {
			all = append(all, t.Connecting(host, gateway, im)...)
		}
	}
	return t.ordered(all)
}

// RulesPassed returns the DestinationRules for the host h, or for a wildcard that covers it, that are not merged into
// h.Rules. Only rules count that are exported to the proxies' namespace. Rules for the host come first, and then rules
// for wildcards, the longest wildcard first. Rules for one name are sorted by age, the oldest first. The result is nil
// for a host without a service.
func (t *Table) RulesPassed(h *Host) (all []*model.DestinationRule) {
	if h.Service == nil {
		return nil
	}
	merged := h.Rules.All()
	t.in.Index.Covering(model.KindDestinationRule, h.Name, func(pattern string) bool {
		at := len(all)
		for r := range t.in.ByHost(model.KindDestinationRule, pattern) {
			rule := r.(*model.DestinationRule)
			if exported(audience(t.in, rule), nil, rule.Key.Namespace, t.key.Namespace) && !slices.Contains(merged, rule) {
				all = append(all, rule)
			}
		}
		slices.SortFunc(all[at:], func(a, b *model.DestinationRule) int { return a.Older(&b.Head) })
		return true
	})
	return all
}

// All returns Main, unless it is nil, and the other DestinationRules that define a subset. Each occurs once. The result
// is nil without rules. The caller owns the result.
func (r Rules) All() (all []*model.DestinationRule) {
	if r.Main != nil {
		all = append(all, r.Main)
	}
	for _, s := range r.subsets {
		if !slices.Contains(all, s.rule) {
			all = append(all, s.rule)
		}
	}
	return all
}

// Ruled reports whether a DestinationRule applies to a host, or a VirtualService that applies to the table's proxies
// lists exactly this host. h must not be nil.
func (t *Table) Ruled(h *Host) bool {
	if h.Rules.Main != nil {
		return true
	}
	for r := range t.in.ByHost(model.KindVirtualService, h.Name) {
		if t.claims(r.(*model.VirtualService)) {
			return true
		}
	}
	return false
}

// Joined returns the ServiceEntries, besides h.Service, that add their ports to the host, the oldest first. The caller
// must not change the result.
func (h *Host) Joined() []*model.Service { return h.joined.All() }

// Clusters returns the Specs of the host's clusters, in the order in which they were planned. Each Spec is a result of
// Form.Cluster. The result is nil without clusters.
func (h *Host) Clusters() (specs []any) {
	for _, c := range h.clusters {
		if c.Res != nil {
			specs = append(specs, c.Spec)
		}
	}
	return specs
}
