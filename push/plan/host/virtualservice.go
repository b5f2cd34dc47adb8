package host

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// sees reports whether a VirtualService applies to a gateway and is exported to this scope.
func (t *Table) sees(vs *model.VirtualService, gateway string) bool {
	return virtualservice.For(vs, gateway) &&
		exported(vs.Spec.GetExportTo(), t.in.Mesh.Spec.GetDefaultVirtualServiceExportTo(), vs.Key.Namespace, t.key.Namespace)
}

// reach ranks a VirtualService by its exportTo, as this scope sees it: 0 private to the namespace, 1 exported to some
// namespaces, 2 to all. Of the VirtualServices of one host the one with the lowest rank precedes, then the oldest
// (istio: pilot/pkg/model/push_context.go, VirtualServicesForGateway).
func (t *Table) reach(vs *model.VirtualService) int {
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

// precedes compares two VirtualServices by reach and then by age, as cmp.Compare does.
func (t *Table) precedes(a, b *model.VirtualService) int {
	return cmp.Or(cmp.Compare(t.reach(a), t.reach(b)), a.Older(&b.Head))
}

// VirtualServiceFor returns the VirtualService whose http rules decide the routes to a host at a gateway, or nil. Only
// VirtualServices that overlap the imports count. VirtualServices that name the host and have http rules come first. If
// no VirtualService names the host, the first one (precedes) with the most specific wildcard that covers the host
// decides; the result is nil if it has no http rules (istio: pilot/pkg/networking/core/route/route.go,
// separateVSHostsAndServices).
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

// VirtualServiceNaming returns the first VirtualService (precedes) with http rules that names exactly this host or
// wildcard, applies to the gateway and overlaps the imports, or nil.
func (t *Table) VirtualServiceNaming(host, gateway string, im *Imports) *model.VirtualService {
	return t.first(host, gateway, im, func(vs *model.VirtualService) bool { return len(vs.Spec.GetHttp()) > 0 })
}

// first returns the first VirtualService (precedes) that satisfies is, names the host or wildcard, applies to the
// gateway and overlaps the imports, or nil.
func (t *Table) first(host, gateway string, im *Imports, is func(*model.VirtualService) bool) (best *model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		vs := r.(*model.VirtualService)
		if is(vs) && t.sees(vs, gateway) && t.overlap(im, vs) && (best == nil || t.precedes(vs, best) < 0) {
			best = vs
		}
	}
	return best
}

// Connecting returns, in order of precedence, the VirtualServices whose tcp and tls rules apply to connections to a
// host at a gateway, among those that overlap the imports. Unlike http rules, the tcp and tls rules of all these
// VirtualServices are merged: those that name the host, a wildcard that covers it or, if the host is a wildcard, a host
// that it covers (istio: pilot/pkg/networking/core/tls.go, getConfigsForHost).
func (t *Table) Connecting(host, gateway string, im *Imports) (all []*model.VirtualService) {
	for _, vs := range t.in.Routing(host) {
		if virtualservice.Connects(vs) && t.sees(vs, gateway) && t.overlap(im, vs) {
			all = append(all, vs)
		}
	}
	slices.SortFunc(all, t.precedes)
	return slices.Compact(all)
}

// RoutedHosts calls f with the names of the hosts whose routes may depend on a VirtualService: its own hosts, the hosts
// that its wildcards cover and, because of its tcp and tls rules, the wildcards that cover its hosts. Names may repeat.
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
