package routes

import (
	"slices"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// specOf returns the Spec of a virtual host (all inputs of its build) for the proxies that the perspective `as`
// selects. Domains that belong to another virtual host are left out. Problems are appended to found. The second result
// is false if no domain remains. If no rule applies, it is also false for a gateway's host that is not Kept, and for
// any other host without a service.
func (t *Table) specOf(rc *routeConfig, vh *VirtualHost, as host.Perspective, found *[]input.Problem) (vhost.Spec, bool) {
	var domains []string
	for _, d := range vh.Domains.All() {
		if lost, reported := t.loses(rc, vh, d); lost && !vh.Keeps {
			if reported {
				*found = append(*found, input.Warning(t.names.Blame(vh), problem.Duplicate, "spec.hosts",
					"name "+d+" at port "+rc.Name+" belongs to another host"))
			}
			continue
		}
		domains = append(domains, d)
	}
	if len(domains) == 0 {
		return vhost.Spec{}, false
	}
	spec := vhost.Spec{Host: vh.Host, Port: vh.Port, Domains: strs.List(domains...),
		Mesh: t.In.Meshes.VirtualHost, Caps: t.Caps, Proxy: t.Proxy}
	name := xds.VirtualHost(vh.Host, vh.Port)
	spec.Patches = t.Patches.Matching(func(p model.Patch) bool {
		return patch.VirtualHostMatches(p, t.matched(rc), name)
	})
	if vh.Bound {
		spec.NoDefault, spec.TLSOnly, spec.HTTP3, spec.Misdirected = true, vh.TLSOnly, vh.HTTP3, vh.Misdirected
		spec.GRPCWeb = vh.GRPCWeb
		return spec, t.Hosts.BoundRoutes(&spec, vh.Rules, as, found) || vh.Kept
	}
	return spec, t.Hosts.Routes(&spec, vh.Rules, as, found)
}

// loses reports whether a virtual host loses a domain. It may lose the domain to a virtual host that a patch adds, or
// to a rival (another virtual host with the domain). The result reported states that the loss is a problem to report.
func (t *Table) loses(rc *routeConfig, vh *VirtualHost, domain string) (lost, reported bool) {
	if rc.taken[domain] {
		return true, true
	}
	for _, id := range t.rivals(rc, vh, domain) {
		if rival := rc.entries.Get(id); rival != nil && id != vh.ID && slices.Contains(rival.Domains.All(), domain) {
			if lost, reported = t.names.Yields(vh, &rival.VirtualHost); lost {
				return lost, reported
			}
		}
	}
	return lost, reported
}

// rivals returns the result of Names.Rivals, in a buffer that the next call overwrites.
func (t *Table) rivals(rc *routeConfig, vh *VirtualHost, domain string) []string {
	t.ids = t.names.Rivals(rc.Config, vh, domain, t.ids[:0])
	return t.ids
}

// markRivals marks rivals of a virtual host (virtual hosts with the same domain), so that they are decided again. It
// considers the domains that differ between two versions of the virtual host. The version old is nil for a new virtual
// host, and now is nil for a removed one.
func (t *Table) markRivals(rc *routeConfig, old, now *entry) {
	vh := now
	if now == nil {
		vh = old
	}
	for _, d := range t.differing(old, now) {
		for _, id := range t.rivals(rc, &vh.VirtualHost, d) {
			if id != vh.ID && rc.entries.Get(id) != nil {
				t.markEntry(rc.Name, id)
			}
		}
	}
}

// differing returns the domains that only one of two versions of a virtual host has. If the versions win against
// different rivals (SameRank), it returns all domains of both versions. A version that keeps its domains (Keeps) does
// not count.
func (t *Table) differing(a, b *entry) (out []string) {
	same := a != nil && b != nil && t.names.SameRank(&a.VirtualHost, &b.VirtualHost)
	if same && a.Domains == b.Domains {
		return nil
	}
	versions := map[string]int{}
	for i, en := range []*entry{a, b} {
		if en == nil || en.Keeps {
			continue
		}
		for _, d := range en.Domains.All() {
			versions[d] |= 1 << i
		}
	}
	for d, which := range versions {
		if which != 3 || !same {
			out = append(out, d)
		}
	}
	return out
}
