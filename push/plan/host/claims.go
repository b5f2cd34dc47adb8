package host

import (
	"slices"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/store/model"
)

// Routed is the virtual host of a host in one route configuration.
type Routed struct {
	Config  string // the route configuration
	Spec    vhost.Spec
	Servers []model.Place // of Gateways, in order of precedence; empty: the proxy is not a gateway
}

// Claim is a VirtualService whose http rules may decide the routes to a host.
type Claim struct {
	VirtualService *model.VirtualService
	Name           string // the host or wildcard by which the VirtualService has the host
	Reach          int    // 0: private to the namespace of the clients, 1: exported to some namespaces, 2: to all
}

// Claims lists the VirtualServices with http rules that have a host, by its name or by a wildcard, and that apply to
// one of the gateways of the form and overlap some import. The order is that of VirtualServiceFor: the name of the host
// first, then the longest wildcard; for one name by precedence.
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

// claims reports whether a VirtualService applies to one of the gateways of the form and overlaps some import.
func (t *Table) claims(vs *model.VirtualService) bool {
	return slices.ContainsFunc(t.form.Gateways, func(gateway string) bool { return t.sees(vs, gateway) }) &&
		slices.ContainsFunc(t.imports, func(im *Imports) bool { return t.overlap(im, vs) })
}

// Connected lists the VirtualServices whose tcp and tls rules apply to connections to a host, by precedence.
func (t *Table) Connected(host string) (all []*model.VirtualService) {
	for _, gateway := range t.form.Gateways {
		for _, im := range t.imports {
			all = append(all, t.Connecting(host, gateway, im)...)
		}
	}
	return t.ordered(all)
}

// RulesPassed lists the DestinationRules that have a host, by its name or by a wildcard, are exported to the scope, and
// are not among the merged rules of the host. Those for the longest name come first, and of one name the oldest.
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

// All lists the rules that define a setting or a subset: Main first.
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

// Ruled reports whether a DestinationRule applies to a host, or a VirtualService names it.
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

// Joined lists the further ServiceEntries whose ports a host has, the oldest first.
func (h *Host) Joined() []*model.Service { return h.joined.All() }

// Clusters returns the Specs of the clusters of a host.
func (h *Host) Clusters() (specs []any) {
	for _, c := range h.clusters {
		if c.Res != nil {
			specs = append(specs, c.Spec)
		}
	}
	return specs
}
