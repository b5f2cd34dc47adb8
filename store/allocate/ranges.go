package allocate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// restate follows which addresses of the ranges a ServiceEntry states: hosts that are gone give them up. A namespace
// keeps MostOfNamespace addresses from being given to others, no more.
func (b *book) restate(e *entry, is []netip.Addr) {
	was, in := e.reserved, e.Namespace
	e.reserved = nil
	for _, a := range is {
		if !b.within(a) || b.statedIn[in] >= MostOfNamespace+len(was) {
			continue
		}
		e.reserved = append(e.reserved, a)
		b.statedIn[in]++
		if b.stated[a]++; b.stated[a] == 1 {
			b.count(a, 1)
		}
		if at, given := b.owners[a]; given {
			b.dirty[at.name] = true
		}
	}
	for _, a := range was {
		b.statedIn[in]--
		if b.stated[a]--; b.stated[a] <= 0 {
			delete(b.stated, a)
			b.count(a, -1)
			b.retry()
		}
	}
	if b.statedIn[in] == 0 {
		delete(b.statedIn, in)
	}
}

func (b *book) within(a netip.Addr) bool {
	return slices.ContainsFunc(b.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// count follows how many addresses of each range are used.
func (b *book) count(a netip.Addr, by int) {
	for i, p := range b.ranges {
		if p.Contains(a) {
			b.used[i] += by
		}
	}
}

// lacking are the ranges of whose family a host has no address.
func (b *book) lacking(have []netip.Addr) (ranges []netip.Prefix) {
	for _, p := range b.ranges {
		if !slices.ContainsFunc(have, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() }) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// choose finds a free address in each of some ranges, the same ones whoever looks: where the hash of the host points
// to, or the next one that is free. wrong says why there is no free one.
func (b *book) choose(at slot, of []netip.Prefix) (fresh []netip.Addr, wrong string) {
	sum := sha256.Sum256([]byte(at.name.Namespace + "/" + at.name.Name + "\x00" + at.host))
	hash := binary.BigEndian.Uint64(sum[:])
	for _, p := range of {
		a, found := b.probe(p, b.used[slices.Index(b.ranges, p)], hash)
		if !found {
			return nil, fmt.Sprintf("all addresses of %s are given away", p)
		}
		fresh = append(fresh, a)
	}
	return fresh, ""
}

// probe looks for a free address of a range of which so many are used. The first and the last address of a range are
// nobody's.
func (b *book) probe(p netip.Prefix, used int, hash uint64) (netip.Addr, bool) {
	size := sizeOf(p)
	if uint64(used) >= size {
		return netip.Addr{}, false
	}
	for i := range size {
		a := at(p, 1+(hash%size+i)%size)
		if _, taken := b.owners[a]; !taken && b.stated[a] == 0 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// sizeOf is how many addresses of a range can be given.
func sizeOf(p netip.Prefix) uint64 { return uint64(1)<<min(p.Addr().BitLen()-p.Bits(), 63) - 2 }

// at is the address of a range with a number.
func at(p netip.Prefix, number uint64) netip.Addr {
	raw := p.Masked().Addr().As16()
	low := binary.BigEndian.Uint64(raw[8:]) | number
	binary.BigEndian.PutUint64(raw[8:], low)
	a := netip.AddrFrom16(raw)
	if p.Addr().Is4() {
		return a.Unmap()
	}
	return a
}
