package host

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// sees says whether a VirtualService is for a gateway, and exported to this scope.
func (t *Table) sees(vs *model.VirtualService, gateway string) bool {
	return virtualservice.For(vs, gateway) &&
		exported(vs.Spec.GetExportTo(), t.in.Mesh.Spec.GetDefaultVirtualServiceExportTo(), vs.Key.Namespace, t.key.Namespace)
}

// reach is how far a VirtualService is seen. Of those of one host that which is seen least far goes before the others, and the oldest of these
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
		return 0 // private, as the scope sees it
	}
	return 1
}

// precedes orders VirtualServices that the scope sees.
func (t *Table) precedes(a, b *model.VirtualService) int {
	return cmp.Or(cmp.Compare(t.reach(a), t.reach(b)), a.Older(&b.Head))
}

// VirtualServiceFor is the VirtualService whose http rules are for a host at a gateway, among what is imported: of those that name the host and have such
// rules the first (precedes). Where none names it, it is the first of those with the most specific wildcard that covers the host, and nil if that one
// has no http rules; a wildcard is for hosts alone that no VirtualService names, whatever rules that one has
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

// VirtualServiceNaming is the first VirtualService with http rules for a gateway, among what is imported, that names this very host or wildcard; nil:
// there is none.
func (t *Table) VirtualServiceNaming(host, gateway string, im *Imports) *model.VirtualService {
	return t.first(host, gateway, im, func(vs *model.VirtualService) bool { return len(vs.Spec.GetHttp()) > 0 })
}

// first is the first VirtualService of a kind for a gateway, among what is imported, that names a host or wildcard; nil: there is none.
func (t *Table) first(host, gateway string, im *Imports, is func(*model.VirtualService) bool) (best *model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		vs := r.(*model.VirtualService)
		if is(vs) && t.sees(vs, gateway) && t.overlap(im, vs) && (best == nil || t.precedes(vs, best) < 0) {
			best = vs
		}
	}
	return best
}

// Connecting are the VirtualServices whose tcp and tls rules are for connections to a host at a gateway, among what is imported, as they go before one another: unlike http
// rules they are merged, those of all that name the host, a wildcard that covers it, or, where it is a wildcard, a host that it covers
// (istio: pilot/pkg/networking/core/tls.go, getConfigsForHost).
func (t *Table) Connecting(host, gateway string, im *Imports) (all []*model.VirtualService) {
	for _, vs := range t.in.Routing(host) {
		if virtualservice.Connects(vs) && t.sees(vs, gateway) && t.overlap(im, vs) {
			all = append(all, vs)
		}
	}
	slices.SortFunc(all, t.precedes)
	return slices.Compact(all)
}

// Decided calls f with the names of hosts about whose routes a VirtualService decides, itself or beside others: those that it names, those that
// its wildcards cover, and the wildcards that cover these, which have its tcp and tls rules too. Some may come several times.
func (t *Table) Decided(vs *model.VirtualService, f func(name string)) {
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
