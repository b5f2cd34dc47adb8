package plan

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// shared is what the scopes of one step have come to so far. Scopes that come to the same keep one value: they were
// born sharing it, and an edit that touches all of them does not drive them apart. The nil shared, between steps,
// remembers nothing.
type shared struct {
	hosts     map[string][]*host
	entries   map[entry]*entry
	manifests map[rewrite]*manifest.Manifest
}

// rewrite is a manifest and what is done to it.
type rewrite struct {
	old   *manifest.Manifest
	puts  intern.List[*xds.Resource]
	drops intern.List[string]
}

func newShared() *shared {
	return &shared{hosts: map[string][]*host{}, entries: map[entry]*entry{}, manifests: map[rewrite]*manifest.Manifest{}}
}

// settle ends the step for its hosts: from now on they are values. What is as it was stays the value that it was.
func (s *scope) settle() {
	for name, was := range s.step.renewed {
		switch h := s.hosts.get(name); {
		case h == nil:
		case was != nil && was.equal(h):
			s.hosts.put(name, was)
		default:
			s.hosts.put(name, s.shared.host(h))
		}
	}
}

func (x *shared) host(h *host) *host {
	if x == nil {
		return h
	}
	for _, other := range x.hosts[h.name] {
		if other == h || other.equal(h) {
			return other
		}
	}
	x.hosts[h.name] = append(x.hosts[h.name], h)
	return h
}

func (h *host) equal(o *host) bool {
	sameCluster := func(a, b clusterUnit) bool { return a.unit == b.unit && a.selection == b.selection } // the labels follow
	return h.name == o.name && h.svc == o.svc && h.rules.main == o.rules.main && slices.Equal(h.rules.subsets, o.rules.subsets) &&
		slices.EqualFunc(h.clusters, o.clusters, sameCluster) && slices.Equal(h.endpoints, o.endpoints) &&
		slices.Equal(h.traffic, o.traffic) && slices.Equal(h.routes, o.routes)
}

func (x *shared) entry(en entry) *entry {
	if x == nil {
		return &en
	}
	if known := x.entries[en]; known != nil {
		return known
	}
	x.entries[en] = &en
	return &en
}

// with is Manifest.With.
func (x *shared) with(old *manifest.Manifest, puts []*xds.Resource, drops []string) *manifest.Manifest {
	if x == nil {
		return old.With(puts, drops)
	}
	slices.SortFunc(puts, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(drops)
	key := rewrite{old, resources.List(puts...), strs.List(drops...)}
	if x.manifests[key] == nil {
		x.manifests[key] = old.With(puts, drops)
	}
	return x.manifests[key]
}
