package manifest

import (
	"cmp"
	"iter"
	"slices"

	"navarch.io/navarch/push/xds"
)

// Delta is one name that differs. Old is nil where the name is new, New where it is gone.
type Delta struct {
	Name     string
	Old, New *xds.Resource
}

// Diff is what differs between two stacks, by pointer: resources of equal bytes are one pointer. The work is
// proportional to the buckets that differ. The order is that of names, so that replicas answer alike.
func Diff(old, new Stack) []Delta { return Join(old, new, DiffLayer) }

// Join is Diff, given what differs between two manifests of one layer: DiffLayer, or what is remembered of it, since many stacks have a layer in common.
func Join(old, new Stack, diffLayer func(old, new *Manifest) []Delta) (all []Delta) {
	var layers [NumLayers][]Delta
	for i := range layers {
		if old[i] != new[i] {
			layers[i] = diffLayer(old[i], new[i])
		}
	}
	for {
		top := -1 // the uppermost layer in which the next name differs
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

// with is Get, given what one layer has of the name.
func (s Stack) with(layer int, name string, has *xds.Resource) *xds.Resource {
	for above := NumLayers - 1; above > layer; above-- {
		if r := s[above].Get(name); r != nil {
			return shown(r)
		}
	}
	if has == nil {
		has = s.top(layer, name)
	}
	return shown(has)
}

// DiffLayer is what differs between two manifests of one layer, by pointer, in the order of names. What stands for no resource (Hidden, Pending) is one here.
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
		for r := range old.apart(new) {
			if now := new.Get(r.Name); now != r {
				all = append(all, Delta{r.Name, r, now})
			}
		}
		for r := range new.apart(old) {
			if old.Get(r.Name) == nil {
				all = append(all, Delta{r.Name, nil, r})
			}
		}
	}
	slices.SortFunc(all, func(a, b Delta) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// apart iterates over the resources of all pages that the other manifest does not share.
func (m *Manifest) apart(other *Manifest) iter.Seq[*xds.Resource] {
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

// same says whether two buckets are one slice, so that nothing in them can differ.
func same(a, b []*xds.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// diffBucket merges two sorted buckets, and adds what differs.
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
