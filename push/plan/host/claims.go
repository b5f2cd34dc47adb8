package host

import (
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/model"
)

// Routed is a host's virtual host in one route configuration.
type Routed struct {
	Config  string        // name of the route configuration
	Spec    vhost.Spec    // the inputs of the virtual host
	Servers []model.Place // of Gateways, in order of precedence; empty: the proxy is not a gateway
}

// Claim is a VirtualService whose http rules may decide the routes to a host; Claims lists them.
type Claim struct {
	VirtualService *model.VirtualService
	Name           string // the host, or the wildcard covering it, in spec.hosts
	// Reach is the rank of the VirtualService's exportTo; lower ranks precede. It is 2 if the VirtualService is
	// exported to all namespaces. Otherwise it is 0 for a VirtualService in the clients' namespace, and 1 for any
	// other.
	Reach int
}

// Claims returns the VirtualServices with http rules that list a host or a wildcard covering it. They apply to a
// gateway of the form (Form.Gateways), are exported to the scope's namespace, and overlap at least one of the imports.
// VirtualServices that list the host come first, then those with the longest wildcard. For one name they are sorted by
// precedence. A VirtualService that lists several of these names occurs for each of them.
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

// claims reports whether a VirtualService applies to a gateway of the form, is exported to the scope's namespace, and
// overlaps at least one of the imports.
func (t *Table) claims(vs *model.VirtualService) bool {
	return slices.ContainsFunc(t.form.Gateways, func(gateway string) bool { return t.sees(vs, gateway) }) &&
		slices.ContainsFunc(t.imports, func(im *Imports) bool { return t.overlap(im, vs) })
}

// Connected returns the VirtualServices whose tcp and tls rules apply to connections to a host, at any gateway of the
// form and for any import, each once, sorted by precedence.
func (t *Table) Connected(host string) (all []*model.VirtualService) {
	for _, gateway := range t.form.Gateways {
		for _, im := range t.imports {
			all = append(all, t.Connecting(host, gateway, im)...)
		}
	}
	return t.ordered(all)
}

// RulesPassed returns the DestinationRules for a host, or for a wildcard covering it, that are exported to the scope's
// namespace but are not among the host's merged rules (Rules.All of h.Rules). Rules for the longest name come first.
// Rules for one name are sorted by age, the oldest first. The result is nil for a host without a service.
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

// All returns Main, unless nil, and the other rules that define a subset, each once; nil without rules. The caller owns
// the result.
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

// Ruled reports whether a DestinationRule applies to a host, or a VirtualService that applies to the scope lists
// exactly this host. h must not be nil.
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

// Joined returns the ServiceEntries, besides Service, that add their ports to the host, the oldest first. The caller
// must not change the result.
func (h *Host) Joined() []*model.Service { return h.joined.All() }

// Clusters returns the Specs of the host's clusters (cluster.Outbound, as converted by Form.Cluster), in the order of
// planning; nil without clusters.
func (h *Host) Clusters() (specs []any) {
	for _, c := range h.clusters {
		if c.Res != nil {
			specs = append(specs, c.Spec)
		}
	}
	return specs
}
