package lookup

import (
	"net/netip"
	"slices"
)

// perChunk is the largest number of addresses in a chunk. A change moves the addresses of one chunk only.
const perChunk = 512

// ordered is a set of IP addresses in ascending order. A search costs two binary searches, and a change moves the
// addresses of one chunk, however many addresses there are.
type ordered struct {
	chunks [][]netip.Addr // in ascending order; each chunk has at least one address
	moves  int            // number of addresses that changes have moved, for tests
}

// chunk returns the index of the chunk that an address belongs to. This is the last chunk whose first address is not
// above the address. If there is no such chunk, it is the first chunk. The set must not be empty.
func (o *ordered) chunk(a netip.Addr) int {
	at, found := slices.BinarySearchFunc(o.chunks, a, func(c []netip.Addr, a netip.Addr) int { return c[0].Compare(a) })
	if found {
		return at
	}
	return max(0, at-1)
}

// add adds an address that is not in the set.
func (o *ordered) add(a netip.Addr) {
	if len(o.chunks) == 0 {
		o.chunks = [][]netip.Addr{{a}}
		return
	}
	i := o.chunk(a)
	at, _ := slices.BinarySearchFunc(o.chunks[i], a, netip.Addr.Compare)
	o.moves += len(o.chunks[i]) - at
	o.chunks[i] = slices.Insert(o.chunks[i], at, a)
	if all := o.chunks[i]; len(all) > perChunk {
		half := len(all) / 2
		o.chunks[i] = all[:half:half]
		o.chunks = slices.Insert(o.chunks, i+1, slices.Clone(all[half:]))
	}
}

// remove removes an address from the set.
func (o *ordered) remove(a netip.Addr) {
	if len(o.chunks) == 0 {
		return
	}
	i := o.chunk(a)
	at, found := slices.BinarySearchFunc(o.chunks[i], a, netip.Addr.Compare)
	if !found {
		return
	}
	o.moves += len(o.chunks[i]) - at
	if o.chunks[i] = slices.Delete(o.chunks[i], at, at+1); len(o.chunks[i]) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

// from returns the lowest address of the set that is not below the given address, or the zero Addr.
func (o *ordered) from(a netip.Addr) netip.Addr {
	if len(o.chunks) == 0 {
		return netip.Addr{}
	}
	i := o.chunk(a)
	at, _ := slices.BinarySearchFunc(o.chunks[i], a, netip.Addr.Compare)
	switch {
	case at < len(o.chunks[i]):
		return o.chunks[i][at]
	case i+1 < len(o.chunks):
		return o.chunks[i+1][0]
	}
	return netip.Addr{}
}
