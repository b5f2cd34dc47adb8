// Package manifest contains the xDS resources that the proxies of a view should have. A view is the configuration that
// proxies with equal inputs share. A Set has a Stack for each type of resource. A Stack has a Manifest for each layer
// of the view (Scope, Variant, Workload, Overlay). A resource in an upper layer replaces the resource of the same name
// in lower layers. Views share the manifests of lower layers.
//
// Owns: nothing; manifests, stacks and sets are immutable. Reads: the resources that callers pass (push/xds). Never:
// reads the configuration store; sends on a stream.
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

// Manifest is an immutable set of resources of one type, by name. It may contain markers (made by Hidden or Pending),
// which hide the resource of the same name in lower layers. A nil Manifest is empty. A Manifest is safe for concurrent
// use.
//
// Resources are in a hash table of pages and buckets. With returns a manifest that shares all unchanged pages and
// buckets with its receiver. An edit of one resource therefore copies one bucket, one page and the list of pages. A
// comparison of the two manifests skips the shared pages and buckets. A table with a page of full size grows by one
// page at a time. The new page takes its resources from only one other page.
type Manifest struct {
	pages  []page // all of length pageSize; a single page may be shorter
	size   int
	digest atomic.Pointer[Sum]
	order  atomic.Pointer[[]*xds.Resource] // sorted by name; computed at the first use
	over   atomic.Pointer[blend]           // in the layer Variant: the last blend (set.go) with a Scope manifest
}

// The table has pages of buckets.
type (
	bucket = []*xds.Resource // sorted by name
	page   = []bucket
)

// The dimensions of the table.
const (
	// bucketFill is the mean number of resources in a bucket above which the table grows.
	bucketFill = 16
	// pageSize is the number of buckets in each page of a table with several pages.
	pageSize = 1 << pageBits
	pageBits = 6
)

// bucketIndex is the position of a bucket: the index of its page, and its index in that page.
type bucketIndex struct{ page, bucket int }

// indexOf returns the position of the bucket for a name.
func (m *Manifest) indexOf(name string) bucketIndex {
	h := xxhash.Sum64String(name)
	return bucketIndex{pageOf(h, len(m.pages)), int(h & uint64(len(m.pages[0])-1))}
}

// pageOf returns the index of the page for a hash in a table with n pages. A page that is added takes resources from
// only one existing page (linear hashing).
func pageOf(hash uint64, n int) int {
	mask := uint64(1)<<bits.Len(uint(n-1)) - 1
	if i := int(hash >> pageBits & mask); i < n {
		return i
	}
	return int(hash >> pageBits & (mask >> 1))
}

// at returns the bucket at a position.
func (m *Manifest) at(p bucketIndex) *bucket { return &m.pages[p.page][p.bucket] }

// Of returns a manifest of resources, which must be of one type and must not change. If several resources have one
// name, the manifest contains the last one. Without arguments, the result is empty and not nil.
func Of(resources ...*xds.Resource) *Manifest {
	var m *Manifest
	return m.With(resources, nil)
}

// Len returns the number of resources, including markers. It is 0 for a nil manifest.
func (m *Manifest) Len() int {
	if m == nil {
		return 0
	}
	return m.size
}

// Get returns the resource or marker with a name. It returns nil if m lacks the name or is nil.
func (m *Manifest) Get(name string) *xds.Resource {
	if m.Len() == 0 {
		return nil
	}
	bucket := *m.at(m.indexOf(name))
	if i, ok := find(bucket, name); ok {
		return bucket[i]
	}
	return nil
}

// All iterates over the resources and markers in an arbitrary order. The manifest may be nil.
func (m *Manifest) All() iter.Seq[*xds.Resource] { return m.unshared(nil) }

// sorted returns all resources and markers, sorted by name. The list is shared, so callers must not change it.
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

// byName compares resources by name.
func byName(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) }

// With applies the deletes and then the puts to the content of m, and returns the resulting manifest. It does not
// change m. Deletes of absent names have no effect. With returns m itself if no delete finds a resource and m already
// contains each pointer in puts. For a nil m, the result is not nil.
func (m *Manifest) With(puts []*xds.Resource, deletes []string) *Manifest {
	next := m.copyPages(len(puts))
	copied := map[int]bool{} // by page
	owned := map[bucketIndex]bool{}
	own := func(at bucketIndex) *bucket {
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
		at := next.indexOf(name)
		if i, ok := find(*next.at(at), name); ok {
			b := own(at)
			*b = slices.Delete(*b, i, i+1)
			next.size--
		}
	}
	for _, r := range puts {
		at := next.indexOf(r.Name)
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

// copyPages returns a manifest with a copy of m's list of pages. The table of the copy is enlarged if it is too small
// for the present resources and the given number of further ones.
func (m *Manifest) copyPages(more int) *Manifest {
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

// widen replaces the only page by a page with the given number of buckets.
func (m *Manifest) widen(width int) {
	old := m.pages[0]
	m.pages[0] = make(page, width)
	for _, bucket := range old {
		for _, r := range bucket {
			b := m.at(m.indexOf(r.Name))
			*b = append(*b, r) // the old bucket is sorted by name, so the new buckets are sorted too
		}
	}
}

// split adds a page, which takes its resources from one other page.
func (m *Manifest) split() {
	n := len(m.pages)
	from := n &^ (1 << (bits.Len(uint(n)) - 1)) // n without its highest bit
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

// find returns the index of a name in a bucket, and whether the bucket has the name.
func find(bucket []*xds.Resource, name string) (int, bool) {
	compare := func(r *xds.Resource, name string) int { return cmp.Compare(r.Name, name) }
	return slices.BinarySearchFunc(bucket, name, compare)
}
