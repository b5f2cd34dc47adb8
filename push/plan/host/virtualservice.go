package host

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// sees reports whether a VirtualService applies to a gateway and is exported to the proxies' namespace.
func (t *Table) sees(vs *model.VirtualService, gateway string) bool {
	return virtualservice.For(vs, gateway) &&
		exported(vs.Spec.GetExportTo(), t.in.Mesh.Spec.GetDefaultVirtualServiceExportTo(), vs.Key.Namespace, t.key.Namespace)
}

// exportRank ranks a VirtualService by its exportTo. The rank of a VirtualService that is exported to all namespaces is
// 2. Otherwise the rank is 0 for a VirtualService in the proxies' namespace, and 1 in other namespaces. Lower ranks
// precede (istio: pilot/pkg/model/push_context.go, VirtualServicesForGateway).
func (t *Table) exportRank(vs *model.VirtualService) int {
	to := vs.Spec.GetExportTo()
	if len(to) == 0 {
		to = t.in.Mesh.Spec.GetDefaultVirtualServiceExportTo()
	}
	switch {
	case slices.Contains(to, "*"):
		return 2
	case vs.Key.Namespace == t.key.Namespace:
		return 0
	}
	return 1
}

// precedes compares two VirtualServices by exportRank and then by age, as cmp.Compare does. If several VirtualServices
// list one host, the first in this order is used.
func (t *Table) precedes(a, b *model.VirtualService) int {
	return cmp.Or(cmp.Compare(t.exportRank(a), t.exportRank(b)), a.Older(&b.Head))
}

// VirtualServiceFor returns the VirtualService whose http rules decide the routes to a host at a gateway, or nil. Only
// VirtualServices count that are exported to the proxies' namespace and whose hosts overlap the imports. The result is
// the first VirtualService, in the order of precedes, that lists the host itself and has http rules. If no
// VirtualService lists the host, the first one for the most specific wildcard that covers the host decides. The result
// is nil if that VirtualService has no http rules, or if VirtualServices list the host but none of them has http rules
// (istio: pilot/pkg/networking/core/route/route.go, separateVSHostsAndServices).
func (t *Table) VirtualServiceFor(host, gateway string, im *Imports) *model.VirtualService {
	if vs := t.VirtualServiceNaming(host, gateway, im); vs != nil {
		return vs
	}
	var best *model.VirtualService
	t.in.Index.Covering(model.KindVirtualService, host, func(pattern string) bool {
		best = t.first(pattern, gateway, im, func(*model.VirtualService) bool { return true })
		return best == nil
	})
	if best == nil || len(best.Spec.GetHttp()) == 0 {
		return nil
	}
	return best
}

// VirtualServiceNaming returns the first VirtualService, in the order of precedes, that has http rules and lists
// exactly this host or wildcard. It returns nil without such a VirtualService. Only VirtualServices count that apply to
// the gateway, are exported to the proxies' namespace, and have hosts that overlap the imports.
func (t *Table) VirtualServiceNaming(host, gateway string, im *Imports) *model.VirtualService {
	return t.first(host, gateway, im, func(vs *model.VirtualService) bool { return len(vs.Spec.GetHttp()) > 0 })
}

// first returns the first VirtualService, in the order of precedes, that lists exactly this host or wildcard and
// satisfies the predicate. It returns nil without such a VirtualService. The VirtualService must also apply to the
// gateway, be exported to the proxies' namespace, and overlap the imports.
func (t *Table) first(host, gateway string, im *Imports, is func(*model.VirtualService) bool) (best *model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		vs := r.(*model.VirtualService)
		if is(vs) && t.sees(vs, gateway) && t.overlap(im, vs) && (best == nil || t.precedes(vs, best) < 0) {
			best = vs
		}
	}
	return best
}

// Connecting returns the VirtualServices whose tcp and tls rules apply to connections to a host at a gateway, sorted by
// precedence. Each occurs once. The result is nil without such VirtualServices. They list the host, a wildcard that
// covers the host or, if the host is a wildcard, a host that it covers. Only VirtualServices count that are exported to
// the proxies' namespace and whose hosts overlap the imports. The rules of all returned VirtualServices apply. In
// contrast, http rules come from one VirtualService (istio: pilot/pkg/networking/core/tls.go, getConfigsForHost).
func (t *Table) Connecting(host, gateway string, im *Imports) (all []*model.VirtualService) {
	for _, vs := range t.in.Routing(host) {
		if virtualservice.Connects(vs) && t.sees(vs, gateway) && t.overlap(im, vs) {
			all = append(all, vs)
		}
	}
	slices.SortFunc(all, t.precedes)
	return slices.Compact(all)
}

// RoutedHosts calls f with the names of the hosts whose routes may depend on a VirtualService. These are the hosts that
// the VirtualService lists, even if the table lacks them, and the hosts of the table that its wildcards cover. If the
// VirtualService has tcp or tls rules, wildcard hosts of the table that cover its hosts are included. Names may repeat.
// f must not add hosts to the table.
func (t *Table) RoutedHosts(vs *model.VirtualService, f func(name string)) {
	for _, h := range vs.Spec.GetHosts() {
		f(h)
		if input.IsWildcard(h) {
			t.Covered(h, f)
		}
		if !virtualservice.Connects(vs) {
			continue
		}
		for pattern := range model.Wildcards(h) {
			if t.Get(pattern) != nil {
				f(pattern)
			}
		}
	}
}
