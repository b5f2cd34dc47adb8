package layer

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Sharing contains the results that the planned parts have computed so far in one step, which plans one change. Parts
// with equal results share one value. Copies of a part therefore share memory with their template even after an edit
// that touches all of them. A Sharing is not safe for concurrent use. The nil Sharing stores nothing, and is used
// between steps.
type Sharing struct {
	values    map[any]any // key of Share -> []*V
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

// Share returns the value to store in place of v. The result is an equal value that was shared under the same key
// before, or v itself. Values must not be changed after Share. Each part of the plan uses its own type K, so keys of
// different parts never collide. All values of one K must have the same type V. If x is nil, the result is v.
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

// with returns old.With(puts, drops). Equal edits of the same manifest have the same result.
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
