package layer

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Sharing contains the results of the scopes of one step so far. Scopes with equal results share one value, so that
// clones keep sharing with their template after an edit that touches all of them. The nil Sharing, between steps,
// stores nothing.
type Sharing struct {
	values    map[any]any // by key of any type: []*V
	manifests map[rewrite]*manifest.Manifest
}

// rewrite identifies a manifest and the edits of it.
type rewrite struct {
	old   *manifest.Manifest
	puts  intern.List[*xds.Resource]
	drops intern.List[string]
}

var (
	resources intern.Table[*xds.Resource]
	names     intern.Table[string]
)

// NewSharing returns the Sharing of a new step.
func NewSharing() *Sharing {
	return &Sharing{values: map[any]any{}, manifests: map[rewrite]*manifest.Manifest{}}
}

// Share returns the value to store in place of v: an equal one that another scope of the step shared under the same
// key, or v. Each part of the plan uses a key type of its own, so that keys of different parts never collide.
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

// with is old.With(puts, drops), or the shared result of the same edit of the same manifest.
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
