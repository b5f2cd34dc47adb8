package manifest

import (
	"hash/maphash"
	"math/bits"
)

// Sum is a digest of a set of names with versions, in which order does not count. Sets of unequal content have unequal
// sums but for a chance of one in 2^64, which nobody outside can steer: the seed is this process's own. A name that is
// added twice is another set. Comparable; the zero Sum is that of the empty set.
type Sum struct {
	Names    NameSum
	versions uint64
}

// NameSum is a Sum of the names alone.
type NameSum struct {
	Len   int // names
	Bytes int // of all of them
	names uint64
}

var nameSeed, versionSeed = maphash.MakeSeed(), maphash.MakeSeed()

// Add puts a name into the set, with its version.
func (s *Sum) Add(name, version string) {
	h := maphash.String(nameSeed, name)
	s.Names.add(h, 1, len(name))
	s.versions += paired(h, version)
}

// Add puts a name into the set.
func (s *NameSum) Add(name string) { s.add(maphash.String(nameSeed, name), 1, len(name)) }

// Remove takes a name out of the set that is in it.
func (s *NameSum) Remove(name string) { s.add(maphash.String(nameSeed, name), -1, len(name)) }

func (s *NameSum) add(hash uint64, times, length int) {
	s.Len += times
	s.Bytes += times * length
	s.names += uint64(times) * spread(hash)
}

// paired binds a version to its name: the versions of two names that are exchanged give another sum.
func paired(name uint64, version string) uint64 {
	return spread(bits.RotateLeft64(name, 23) ^ maphash.String(versionSeed, version))
}

// spread keeps sums of hashes from being sums of bits.
func spread(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (s *Sum) remove(name, version string) {
	h := maphash.String(nameSeed, name)
	s.Names.add(h, -1, len(name))
	s.versions -= paired(h, version)
}

func (s *Sum) merge(o Sum) {
	s.Names.Len += o.Names.Len
	s.Names.Bytes += o.Names.Bytes
	s.Names.names += o.Names.names
	s.versions += o.versions
}

// sum is the Sum of all resources, hidden ones left out; it is kept.
func (m *Manifest) sum() Sum {
	if m.Len() == 0 {
		return Sum{}
	}
	if s := m.digest.Load(); s != nil {
		return *s
	}
	var s Sum
	for r := range m.All() {
		if !hides(r) {
			s.Add(r.Name, r.Version)
		}
	}
	m.digest.Store(&s)
	return s
}

// cover puts a layer over what lies below it, of which s is the Sum.
func (s *Sum) cover(below Stack, upper *Manifest) {
	s.merge(upper.sum())
	for r := range upper.All() {
		if under := below.Get(r.Name); under != nil {
			s.remove(under.Name, under.Version)
		}
	}
}

// Sum is the Sum of what is visible. The work is that of the layers above a variant's, which are small, once the layers' own and that of
// the variant over its scope are known.
func (s Stack) Sum() Sum {
	total := s.shared().sum
	for i := Workload; i < NumLayers; i++ {
		if s[i].Len() > 0 {
			below := Stack{}
			copy(below[:i], s[:i])
			total.cover(below, s[i])
		}
	}
	return total
}
