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

// reach ranks a VirtualService by its exportTo: 0 private to the namespace, 1 exported to some namespaces, 2 to all.
// Among VirtualServices of one host the lowest rank is first, then the oldest (istio:
// pilot/pkg/model/push_context.go, VirtualServicesForGateway).
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

// precedes compares two VirtualServices that the scope sees, by reach and then by age.
func (t *Table) precedes(a, b *model.VirtualService) int {
	return cmp.Or(cmp.Compare(t.reach(a), t.reach(b)), a.Older(&b.Head))
}

// VirtualServiceFor is the VirtualService whose http rules decide about a host at a gateway, among the imports; nil:
// none. It is the first (precedes) of those that name the host and have http rules. If no VirtualService names the
// host, it is the first of those with the most specific wildcard that covers the host, and nil if that one has no
// http rules (istio: pilot/pkg/networking/core/route/route.go, separateVSHostsAndServices).
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

// VirtualServiceNaming is the first VirtualService with http rules that names this very host or wildcard, at a
// gateway and among the imports; nil: none.
func (t *Table) VirtualServiceNaming(host, gateway string, im *Imports) *model.VirtualService {
	return t.first(host, gateway, im, func(vs *model.VirtualService) bool { return len(vs.Spec.GetHttp()) > 0 })
}

// first is the first VirtualService of a kind that names a host or wildcard, at a gateway and among the imports; nil:
// none.
func (t *Table) first(host, gateway string, im *Imports, is func(*model.VirtualService) bool) (best *model.VirtualService) {
	for r := range t.in.ByHost(model.KindVirtualService, host) {
		vs := r.(*model.VirtualService)
		if is(vs) && t.sees(vs, gateway) && t.overlap(im, vs) && (best == nil || t.precedes(vs, best) < 0) {
			best = vs
		}
	}
	return best
}

// Connecting lists, in order, the VirtualServices whose tcp and tls rules apply to connections to a host at a
// gateway, among the imports. Unlike http rules they are merged: of all VirtualServices that name the host, a
// wildcard that covers it, or, if the host is a wildcard, a host that it covers (istio:
// pilot/pkg/networking/core/tls.go, getConfigsForHost).
func (t *Table) Connecting(host, gateway string, im *Imports) (all []*model.VirtualService) {
	for _, vs := range t.in.Routing(host) {
		if virtualservice.Connects(vs) && t.sees(vs, gateway) && t.overlap(im, vs) {
			all = append(all, vs)
		}
	}
	slices.SortFunc(all, t.precedes)
	return slices.Compact(all)
}

// Decided calls f with the names of the hosts whose routes a VirtualService decides, alone or beside others: its
// hosts, the hosts that its wildcards cover, and the wildcards that cover its hosts, which have its tcp and tls rules
// too. Names may repeat.
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
