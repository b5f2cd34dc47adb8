// Package manifest holds the set of resources that one view should have.
//
// Owns: nothing; values are immutable.  Reads: push/xds.  Never: the snapshot, a stream.
package manifest

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"navarch.io/navarch/push/xds"
)

// Manifest is an immutable set of resources of one type by name. A manifest made from another shares all pages and
// buckets that hold no difference, so an edit of one resource costs one bucket and one page however many there are, and
// comparing the two costs the same. A manifest that grows splits one page for each page of new resources: no edit moves
// all of them. The nil Manifest is empty.
type Manifest struct {
	pages  []page // all of one length, pageSize where there are several
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
	// bucketFill is the mean number of resources in a bucket above which the table grows.
	bucketFill = 16
	// pageSize is the number of buckets in a page of a table that has several.
	pageSize = 1 << pageBits
	pageBits = 6
)

// place is a bucket's place.
type place struct{ page, bucket int }

// place returns the place of a name's bucket.
func (m *Manifest) place(name string) place {
	h := xxhash.Sum64String(name)
	return place{pageOf(h, len(m.pages)), int(h & uint64(len(m.pages[0])-1))}
}

// pageOf is the page of a hash among n of them. Page n, the next one, takes a part of one page, and of no other
// (linear hashing).
func pageOf(hash uint64, n int) int {
	mask := uint64(1)<<bits.Len(uint(n-1)) - 1
	if i := int(hash >> pageBits & mask); i < n {
		return i
	}
	return int(hash >> pageBits & (mask >> 1))
}

// at is the bucket at a place.
func (m *Manifest) at(p place) *bucket { return &m.pages[p.page][p.bucket] }

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
	bucket := *m.at(m.place(name))
	if i, ok := find(bucket, name); ok {
		return bucket[i]
	}
	return nil
}

// All iterates over the resources in an order that means nothing (it depends on how the table grew).
func (m *Manifest) All() iter.Seq[*xds.Resource] { return m.apart(nil) }

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
	copied := map[int]bool{} // pages
	owned := map[place]bool{}
	own := func(at place) *bucket {
		if owned[at] {
			return next.at(at)
		}
		if owned[at] = true; !copied[at.page] {
			copied[at.page] = true
			next.pages[at.page] = slices.Clone(next.pages[at.page])
		}
		b := next.at(at)
		*b = slices.Clone(*b)
		return b
	}
	for _, name := range deletes {
		at := next.place(name)
		if i, ok := find(*next.at(at), name); ok {
			b := own(at)
			*b = slices.Delete(*b, i, i+1)
			next.size--
		}
	}
	for _, r := range puts {
		at := next.place(r.Name)
		i, ok := find(*next.at(at), r.Name)
		switch {
		case ok && (*next.at(at))[i] == r:
		case ok:
			(*own(at))[i] = r
		default:
			b := own(at)
			*b = slices.Insert(*b, i, r)
			next.size++
		}
	}
	if len(owned) == 0 && m != nil {
		return m
	}
	return next
}

// thaw is a copy of the list of pages, with room for `more` resources.
func (m *Manifest) thaw(more int) *Manifest {
	next := &Manifest{pages: []page{make(page, 1)}}
	if m != nil {
		next.pages, next.size = slices.Clone(m.pages), m.size
	}
	want, width := next.size+more, len(next.pages[0])
	for width < pageSize && width*bucketFill < want {
		width *= 2
	}
	if width > len(next.pages[0]) {
		next.widen(width)
	}
	for len(next.pages)*pageSize*bucketFill < want {
		next.split()
	}
	return next
}

// widen gives the only page more buckets.
func (m *Manifest) widen(width int) {
	old := m.pages[0]
	m.pages[0] = make(page, width)
	for _, bucket := range old {
		for _, r := range bucket {
			b := m.at(m.place(r.Name))
			*b = append(*b, r) // in the order of names, as in the bucket that is divided
		}
	}
}

// split divides one page in two.
func (m *Manifest) split() {
	n := len(m.pages)
	from := n &^ (1 << (bits.Len(uint(n)) - 1)) // n without its first bit
	stay, moved := make(page, pageSize), make(page, pageSize)
	for i, bucket := range m.pages[from] {
		for _, r := range bucket {
			if pageOf(xxhash.Sum64String(r.Name), n+1) == n {
				moved[i] = append(moved[i], r)
			} else {
				stay[i] = append(stay[i], r)
			}
		}
	}
	m.pages[from] = stay
	m.pages = append(m.pages, moved)
}

func find(bucket []*xds.Resource, name string) (int, bool) {
	return slices.BinarySearchFunc(bucket, name, func(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) })
}
