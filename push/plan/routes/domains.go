package routes

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// specOf decides the domains, patches, rules and destinations of a virtual host for the proxies that a perspective
// selects. Domains that belong to another virtual host are left out. Problems are appended to found. The result is
// false if no domain remains. It is also false if no rule applies and there is no service, unless vh.Kept is set. It
// calls pause between two pieces of the work.
func (t *Table) specOf(
	rc *routeConfig, vh *VirtualHost, as host.Perspective, found *[]input.Problem, pause func(),
) (vhost.Spec, bool) {
	domains := t.domainsLeft(rc, vh, found, pause)
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

// perPiece is the number of domains between two pauses.
const perPiece = 200

// maxLost is the largest number of domains of a virtual host that problems name.
const maxLost = 10

// domainsLeft returns the domains that a virtual host does not yield. The domains that it yields are appended to found
// as problems. The first maxLost of these problems name one domain each, and a last problem counts the others.
func (t *Table) domainsLeft(rc *routeConfig, vh *VirtualHost, found *[]input.Problem, pause func()) (left []string) {
	lost := 0
	for i, d := range vh.Domains.All() {
		if i%perPiece == perPiece-1 {
			pause()
		}
		loses, reported := t.loses(rc, vh, d)
		if !loses || vh.Keeps {
			left = append(left, d)
		} else if reported {
			if lost++; lost <= maxLost {
				*found = append(*found, input.Warning(t.names.Blame(vh), problem.Duplicate, "spec.hosts",
					"name "+d+" at port "+rc.Name+" belongs to another host"))
			}
		}
	}
	if more := lost - maxLost; more > 0 {
		*found = append(*found, input.Warning(t.names.Blame(vh), problem.Duplicate, "spec.hosts",
			fmt.Sprintf("%d more names at port %s belong to other hosts", more, rc.Name)))
	}
	return left
}

// fewDomains is the length up to which a list of domains is searched without a set.
const fewDomains = 16

// contains reports whether a list contains a domain. A long list is searched by a set, which is made once in a step.
func (t *Table) contains(list intern.List[string], domain string) bool {
	if list.Len() <= fewDomains {
		return slices.Contains(list.All(), domain)
	}
	set := t.sets[list]
	if set == nil {
		set = make(map[string]bool, list.Len())
		for _, d := range list.All() {
			set[d] = true
		}
		if t.sets == nil {
			t.sets = map[intern.List[string]]map[string]bool{}
		}
		t.sets[list] = set
	}
	return set[domain]
}

// loses reports whether a virtual host yields a domain to a patch or to a rival. The result reported is true if the
// loss of the domain is a problem to report.
func (t *Table) loses(rc *routeConfig, vh *VirtualHost, domain string) (lost, reported bool) {
	if rc.taken[domain] {
		return true, true
	}
	for _, id := range t.rivals(rc, vh, domain) {
		if rival := rc.entries.Get(id); rival != nil && id != vh.ID && t.contains(rival.Domains, domain) {
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

// markRivals marks the rivals for all domains that differ between two versions of a virtual host. The argument old is
// nil for a new virtual host, and the argument now is nil for a removed one. It calls pause between two pieces of the
// work.
func (t *Table) markRivals(rc *routeConfig, old, now *entry, pause func()) {
	vh := now
	if now == nil {
		vh = old
	}
	for i, d := range t.differing(old, now) {
		if i%perPiece == perPiece-1 {
			pause()
		}
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
