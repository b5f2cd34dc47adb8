package manifest

import (
	"cmp"
	"iter"
	"slices"

	"navarch.io/navarch/push/xds"
)

// Delta is a resource that differs between two stacks or manifests, an old one and a new one. Old is nil if the old one
// lacks the resource. New is nil if the new one lacks it.
type Delta struct {
	Name     string
	Old, New *xds.Resource
}

// Diff returns the visible resources (see Stack) that differ between two stacks, sorted by name. It returns nil without
// differences. Resources differ if their pointers differ. Diff skips the memory that manifests share, so a small
// difference costs little. The caller owns the result.
func Diff(old, new Stack) []Delta { return Join(old, new, DiffLayer) }

// Join returns the same as Diff, but compares the manifests of each layer by diffLayer. The parameter diffLayer is
// DiffLayer, or a function that caches DiffLayer's results. Join calls it only for layers whose manifests are different
// pointers. Join does not change the results of diffLayer.
func Join(old, new Stack, diffLayer func(old, new *Manifest) []Delta) (all []Delta) {
	var layers [NumLayers][]Delta
	for i := range layers {
		if old[i] != new[i] {
			layers[i] = diffLayer(old[i], new[i])
		}
	}
	for {
		top := -1 // the uppermost layer whose differences begin with the smallest name
		for i, rest := range layers {
			if len(rest) > 0 && (top < 0 || rest[0].Name <= layers[top][0].Name) {
				top = i
			}
		}
		if top < 0 {
			return all
		}
		d := layers[top][0]
		for i, rest := range layers {
			if len(rest) > 0 && rest[0].Name == d.Name {
				layers[i] = rest[1:]
			}
		}
		if d.Old, d.New = old.with(top, d.Name, d.Old), new.with(top, d.Name, d.New); d.Old != d.New {
			all = append(all, d)
		}
	}
}

// with returns the result of Stack.Get for a name, without a look-up in the given layer. The parameter known is that
// layer's resource or marker for the name, or nil if the layer lacks the name.
func (s Stack) with(layer int, name string, known *xds.Resource) *xds.Resource {
	for above := NumLayers - 1; above > layer; above-- {
		if r := s[above].Get(name); r != nil {
			return visibleOrNil(r)
		}
	}
	if known == nil {
		known = s.top(layer, name)
	}
	return visibleOrNil(known)
}

// DiffLayer returns the resources that differ between two manifests of one layer, sorted by name. It returns nil
// without differences. It compares pointers, and treats markers (made by Hidden or Pending) as resources. Each manifest
// may be nil. The caller owns the result.
func DiffLayer(old, new *Manifest) (all []Delta) {
	switch {
	case old == new:
		return nil
	case old != nil && new != nil && len(old.pages) == len(new.pages) && len(old.pages[0]) == len(new.pages[0]):
		for i, page := range old.pages {
			if &page[0] == &new.pages[i][0] {
				continue
			}
			for j, bucket := range page {
				if now := new.pages[i][j]; !same(bucket, now) {
					all = diffBucket(all, bucket, now)
				}
			}
		}
	default:
		for r := range old.unshared(new) {
			if now := new.Get(r.Name); now != r {
				all = append(all, Delta{r.Name, r, now})
			}
		}
		for r := range new.unshared(old) {
			if old.Get(r.Name) == nil {
				all = append(all, Delta{r.Name, nil, r})
			}
		}
	}
	slices.SortFunc(all, func(a, b Delta) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// unshared iterates over the resources and markers in those pages of m that the manifest other does not share. If other
// is nil, it iterates over all pages.
func (m *Manifest) unshared(other *Manifest) iter.Seq[*xds.Resource] {
	return func(yield func(*xds.Resource) bool) {
		if m == nil {
			return
		}
		for i, page := range m.pages {
			if other != nil && i < len(other.pages) && &page[0] == &other.pages[i][0] {
				continue
			}
			for _, bucket := range page {
				for _, r := range bucket {
					if !yield(r) {
						return
					}
				}
			}
		}
	}
}

// same reports whether two buckets are the same slice, or both empty.
func same(a, b []*xds.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// diffBucket compares two sorted buckets, and appends a Delta for each name that differs.
func diffBucket(all []Delta, old, new []*xds.Resource) []Delta {
	for len(old) > 0 || len(new) > 0 {
		switch {
		case len(new) == 0 || len(old) > 0 && old[0].Name < new[0].Name:
			all = append(all, Delta{old[0].Name, old[0], nil})
			old = old[1:]
		case len(old) == 0 || new[0].Name < old[0].Name:
			all = append(all, Delta{new[0].Name, nil, new[0]})
			new = new[1:]
		default:
			if old[0] != new[0] {
				all = append(all, Delta{old[0].Name, old[0], new[0]})
			}
			old, new = old[1:], new[1:]
		}
	}
	return all
}
