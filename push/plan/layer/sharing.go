package layer

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Sharing is what the scopes of one step have come to so far. Scopes that come to the same keep one value: clones share their
// template's, and an edit that touches all of them does not drive them apart. The nil Sharing, between steps, remembers nothing.
type Sharing struct {
	values    map[any]any // by key, of whatever type it is: []*V
	manifests map[rewrite]*manifest.Manifest
}

// rewrite is a manifest and what is done to it.
type rewrite struct {
	old   *manifest.Manifest
	puts  intern.List[*xds.Resource]
	drops intern.List[string]
}

var (
	resources intern.Table[*xds.Resource]
	names     intern.Table[string]
)

// NewSharing begins a step.
func NewSharing() *Sharing {
	return &Sharing{values: map[any]any{}, manifests: map[rewrite]*manifest.Manifest{}}
}

// Share is the value to keep in place of v: an equal one that another scope of the step came to before under the same key, or v. The
// key's type says which part of the plan asks, so that no two meet.
func Share[K comparable, V any](x *Sharing, key K, v *V, equal func(a, b *V) bool) *V {
	if x == nil {
		return v
	}
	known, _ := x.values[key].([]*V)
	for _, other := range known {
		if other == v || equal(other, v) {
			return other
		}
	}
	x.values[key] = append(known, v)
	return v
}

// with is Manifest.With.
func (x *Sharing) with(old *manifest.Manifest, puts []*xds.Resource, drops []string) *manifest.Manifest {
	if x == nil {
		return old.With(puts, drops)
	}
	slices.SortFunc(puts, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(drops)
	key := rewrite{old, resources.List(puts...), names.List(drops...)}
	if x.manifests[key] == nil {
		x.manifests[key] = old.With(puts, drops)
	}
	return x.manifests[key]
}
