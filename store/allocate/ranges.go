package allocate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// restate replaces the stated addresses of a ServiceEntry, which are the addresses in its spec. The book (the table of
// assigned addresses) does not assign a stated address to a host. A present host that already has the address keeps it.
// The book ignores addresses outside its ranges. It uses at most MostOfNamespace stated addresses of each namespace,
// and ignores the others. If a spec states an address of a removed host, the next Step releases all addresses of that
// host, without waiting for grace.
func (b *book) restate(e *entry, is []netip.Addr) {
	was, in := e.reserved, e.Namespace
	e.reserved = nil
	for _, a := range is {
		if !b.within(a) || b.statedIn[in] >= MostOfNamespace+len(was) {
			continue
		}
		e.reserved = append(e.reserved, a)
		b.statedIn[in]++
		b.stated[a]++
		if at, given := b.owners[a]; given {
			b.changed[at.name] = true
		} else if b.stated[a] == 1 {
			b.count(a, 1)
		}
	}
	for _, a := range was {
		b.statedIn[in]--
		if b.stated[a]--; b.stated[a] <= 0 {
			delete(b.stated, a)
			if _, given := b.owners[a]; !given {
				b.count(a, -1)
			}
			b.retry()
		}
	}
	if b.statedIn[in] == 0 {
		delete(b.statedIn, in)
	}
}

// within reports whether an address is in one of the ranges.
func (b *book) within(a netip.Addr) bool {
	return slices.ContainsFunc(b.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// count adds n to the number of used addresses of the range that contains a. The first and the last address of a range
// are not counted, because they are never assigned.
func (b *book) count(a netip.Addr, n int) {
	for i, p := range b.ranges {
		if p.Contains(a) && a != at(p, 0) && a != at(p, sizeOf(p)+1) {
			b.used[i] += n
		}
	}
}

// lacking returns the ranges of the address families that the given addresses of a host lack.
func (b *book) lacking(have []netip.Addr) (ranges []netip.Prefix) {
	for _, p := range b.ranges {
		if !slices.ContainsFunc(have, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() }) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// choose returns one unused address of each given range. In each range, the search begins at a position that depends on
// a hash of the host. Equal books yield equal addresses. If a range has no unused address, the result wrong has the
// reason, and the result fresh is nil.
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

// probe returns the first unused address of a range. The search begins at the position that depends on hash. probe
// returns false if all addresses are used. The argument used is the number of used addresses of the range. The first
// and the last address of the range are never assigned.
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

// sizeOf returns the number of addresses of a range that can be assigned, at most 2^63-2. A range has at least four
// addresses.
func sizeOf(p netip.Prefix) uint64 { return uint64(1)<<min(p.Addr().BitLen()-p.Bits(), 63) - 2 }

// at returns the address with the given offset from the start of a range.
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
