// Package manifest holds the set of resources that one view should have.
//
// Owns: nothing; values are immutable.  Reads: push/xds.  Never: the snapshot, a stream.
package manifest

import (
	"cmp"
	"iter"
	"slices"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/xds"
)

// Manifest is an immutable set of resources of one type by name. A manifest made from another shares all buckets that
// hold no difference, so an edit of one resource costs one bucket, and comparing the two costs the same. The nil
// Manifest is empty.
type Manifest struct {
	buckets [][]*xds.Resource // length is a power of two; each sorted by name
	size    int
}

// bucketFill is the mean number of resources in a bucket above which the table doubles.
const bucketFill = 16

// Of makes a manifest of resources; of two with one name the last counts.
func Of(resources ...*xds.Resource) *Manifest {
	var m *Manifest
	return m.With(resources, nil)
}

// Len is the number of resources.
func (m *Manifest) Len() int {
	if m == nil {
		return 0
	}
	return m.size
}

// Get finds a resource; nil if there is none of that name.
func (m *Manifest) Get(name string) *xds.Resource {
	if m.Len() == 0 {
		return nil
	}
	bucket := m.buckets[m.slot(name)]
	if i, ok := find(bucket, name); ok {
		return bucket[i]
	}
	return nil
}

// All iterates over the resources in an order that means nothing (it depends on how the table grew).
func (m *Manifest) All() iter.Seq[*xds.Resource] {
	return func(yield func(*xds.Resource) bool) {
		if m == nil {
			return
		}
		for _, bucket := range m.buckets {
			for _, r := range bucket {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// With is the manifest after deletes and then puts. Where nothing differs it is the receiver itself.
func (m *Manifest) With(puts []*xds.Resource, deletes []string) *Manifest {
	next := m.thaw(len(puts))
	copied := map[uint64]bool{}
	own := func(slot uint64) []*xds.Resource {
		if !copied[slot] {
			copied[slot] = true
			next.buckets[slot] = slices.Clone(next.buckets[slot])
		}
		return next.buckets[slot]
	}
	for _, name := range deletes {
		slot := next.slot(name)
		if i, ok := find(next.buckets[slot], name); ok {
			next.buckets[slot] = slices.Delete(own(slot), i, i+1)
			next.size--
		}
	}
	for _, r := range puts {
		slot := next.slot(r.Name)
		i, ok := find(next.buckets[slot], r.Name)
		switch {
		case ok && next.buckets[slot][i] == r:
		case ok:
			own(slot)[i] = r
		default:
			next.buckets[slot] = slices.Insert(own(slot), i, r)
			next.size++
		}
	}
	if len(copied) == 0 && m != nil {
		return m
	}
	return next
}

// thaw is a copy of the spine, doubled until it has room for `more` resources.
func (m *Manifest) thaw(more int) *Manifest {
	slots := 1
	if m != nil {
		slots = len(m.buckets)
	}
	want := slots
	for want*bucketFill < m.Len()+more {
		want *= 2
	}
	if m != nil && want == slots {
		return &Manifest{buckets: slices.Clone(m.buckets), size: m.size}
	}
	next := &Manifest{buckets: make([][]*xds.Resource, want), size: m.Len()}
	for r := range m.All() {
		slot := next.slot(r.Name)
		next.buckets[slot] = append(next.buckets[slot], r)
	}
	for _, bucket := range next.buckets {
		slices.SortFunc(bucket, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	}
	return next
}

func (m *Manifest) slot(name string) uint64 {
	return xxhash.Sum64String(name) & uint64(len(m.buckets)-1)
}

func find(bucket []*xds.Resource, name string) (int, bool) {
	return slices.BinarySearchFunc(bucket, name, func(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) })
}

// diff yields the names whose resource is not the same pointer in both; a name may be yielded once only.
func diff(a, b *Manifest, yield func(name string)) {
	if a == b {
		return
	}
	if a == nil || b == nil || len(a.buckets) != len(b.buckets) {
		for r := range a.All() {
			if b.Get(r.Name) != r {
				yield(r.Name)
			}
		}
		for r := range b.All() {
			if a.Get(r.Name) == nil {
				yield(r.Name)
			}
		}
		return
	}
	for i := range a.buckets {
		if !same(a.buckets[i], b.buckets[i]) {
			diffBucket(a.buckets[i], b.buckets[i], yield)
		}
	}
}

// same says whether two buckets are one slice, so that nothing in them can differ.
func same(a, b []*xds.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// diffBucket merges two sorted buckets.
func diffBucket(a, b []*xds.Resource, yield func(name string)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			yield(a[0].Name)
			a = a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			yield(b[0].Name)
			b = b[1:]
		default:
			if a[0] != b[0] {
				yield(a[0].Name)
			}
			a, b = a[1:], b[1:]
		}
	}
}
