// Package manifest holds the set of resources that one view should have.
//
// Owns: nothing; values are immutable.  Reads: push/xds.  Never: the snapshot, a stream.
package manifest

import (
	"cmp"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/xds"
)

// Manifest is an immutable set of resources of one type by name. A manifest made from another shares all pages and
// buckets that hold no difference, so an edit of one resource costs one bucket and one page however many there are, and
// comparing the two costs the same. The nil Manifest is empty.
type Manifest struct {
	pages  []page // all of one length; pages times that length is a power of two
	size   int
	digest atomic.Pointer[Sum]
	order  atomic.Pointer[[]*xds.Resource] // by name; made when it is first asked for: proxies that join ask, others do not
	over   atomic.Pointer[blend]           // of a Variant's manifest: it over its scope's; made when it is first asked for, too
}

type (
	bucket = []*xds.Resource // sorted by name
	page   = []bucket
)

const (
	// bucketFill is the mean number of resources in a bucket above which the table doubles.
	bucketFill = 16
	// pageSize is the number of buckets in a page of a table that has several.
	pageSize = 64
)

// table makes an empty manifest of a number of buckets, a power of two.
func table(slots int) *Manifest {
	m := &Manifest{pages: make([]page, max(1, slots/pageSize))}
	for i := range m.pages {
		m.pages[i] = make(page, min(slots, pageSize))
	}
	return m
}

// slots is the number of buckets.
func (m *Manifest) slots() int { return len(m.pages) * len(m.pages[0]) }

// at is a bucket's place.
func (m *Manifest) at(slot uint64) *bucket {
	width := uint64(len(m.pages[0]))
	return &m.pages[slot/width][slot%width]
}

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
	bucket := *m.at(m.slot(name))
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
		for _, page := range m.pages {
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

// sorted is all resources by name. It is shared: not to be changed.
func (m *Manifest) sorted() []*xds.Resource {
	if m.Len() == 0 {
		return nil
	}
	if all := m.order.Load(); all != nil {
		return *all
	}
	all := slices.SortedFunc(m.All(), byName)
	m.order.Store(&all)
	return all
}

func byName(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) }

// With is the manifest after deletes and then puts. Where nothing differs it is the receiver itself.
func (m *Manifest) With(puts []*xds.Resource, deletes []string) *Manifest {
	next := m.thaw(len(puts))
	fresh := m == nil || next.slots() != m.slots() // all pages are its own
	owned := map[uint64]bool{}
	own := func(slot uint64) *bucket {
		if owned[slot] {
			return next.at(slot)
		}
		owned[slot] = true
		if width := uint64(len(next.pages[0])); !fresh && &next.pages[slot/width][0] == &m.pages[slot/width][0] {
			next.pages[slot/width] = slices.Clone(next.pages[slot/width])
		}
		b := next.at(slot)
		*b = slices.Clone(*b)
		return b
	}
	for _, name := range deletes {
		slot := next.slot(name)
		if i, ok := find(*next.at(slot), name); ok {
			b := own(slot)
			*b = slices.Delete(*b, i, i+1)
			next.size--
		}
	}
	for _, r := range puts {
		slot := next.slot(r.Name)
		i, ok := find(*next.at(slot), r.Name)
		switch {
		case ok && (*next.at(slot))[i] == r:
		case ok:
			(*own(slot))[i] = r
		default:
			b := own(slot)
			*b = slices.Insert(*b, i, r)
			next.size++
		}
	}
	if len(owned) == 0 && m != nil {
		return m
	}
	return next
}

// thaw is a copy of the list of pages, or a table of twice the buckets (or more) where there is no room for `more`
// resources.
func (m *Manifest) thaw(more int) *Manifest {
	slots := 1
	if m != nil {
		slots = m.slots()
	}
	want := slots
	for want*bucketFill < m.Len()+more {
		want *= 2
	}
	if m != nil && want == slots {
		return &Manifest{pages: slices.Clone(m.pages), size: m.size}
	}
	next := table(want)
	next.size = m.Len()
	for r := range m.All() {
		b := next.at(next.slot(r.Name))
		*b = append(*b, r)
	}
	for _, page := range next.pages {
		for _, bucket := range page {
			slices.SortFunc(bucket, byName)
		}
	}
	return next
}

func (m *Manifest) slot(name string) uint64 {
	return xxhash.Sum64String(name) & uint64(m.slots()-1)
}

func find(bucket []*xds.Resource, name string) (int, bool) {
	return slices.BinarySearchFunc(bucket, name, func(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) })
}
