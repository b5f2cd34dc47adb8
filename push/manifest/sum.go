package manifest

import (
	"hash/maphash"
	"math/bits"
)

// Sum is a digest of a set of names with versions, independent of their order. Sets of unequal content have equal sums
// with a probability of 2^-64, which an outsider cannot influence, because the seed is random in each process. A name
// that is added twice counts twice. It is comparable; the zero Sum is that of the empty set.
type Sum struct {
	Names    NameSum
	versions uint64
}

// NameSum is a Sum of the names alone.
type NameSum struct {
	Len   int // number of names
	Bytes int // length of all names
	names uint64
}

// The seeds of the hashes of names and of versions.
var nameSeed, versionSeed = maphash.MakeSeed(), maphash.MakeSeed()

// Add adds a name with its version to the set.
func (s *Sum) Add(name, version string) {
	h := maphash.String(nameSeed, name)
	s.Names.add(h, 1, len(name))
	s.versions += paired(h, version)
}

// Add adds a name to the set.
func (s *NameSum) Add(name string) { s.add(maphash.String(nameSeed, name), 1, len(name)) }

// Remove removes a name that is in the set.
func (s *NameSum) Remove(name string) { s.add(maphash.String(nameSeed, name), -1, len(name)) }

// add adds or, with times -1, removes a name by its hash.
func (s *NameSum) add(hash uint64, times, length int) {
	s.Len += times
	s.Bytes += times * length
	s.names += uint64(times) * spread(hash)
}

// paired combines a version with its name, so that two names which exchange their versions have another sum.
func paired(name uint64, version string) uint64 {
	return spread(bits.RotateLeft64(name, 23) ^ maphash.String(versionSeed, version))
}

// spread mixes the bits of a hash, so that the bits of a sum are not those of a single hash.
func spread(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// remove removes a name with its version.
func (s *Sum) remove(name, version string) {
	h := maphash.String(nameSeed, name)
	s.Names.add(h, -1, len(name))
	s.versions -= paired(h, version)
}

// merge adds the names of another set.
func (s *Sum) merge(o Sum) {
	s.Names.Len += o.Names.Len
	s.Names.Bytes += o.Names.Bytes
	s.Names.names += o.Names.names
	s.versions += o.versions
}

// sum returns the Sum of all resources without markers. It is computed once.
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

// cover adds the layer upper to s, which is the Sum of the layers below.
func (s *Sum) cover(below Stack, upper *Manifest) {
	s.merge(upper.sum())
	for r := range upper.All() {
		if under := below.Get(r.Name); under != nil {
			s.remove(under.Name, under.Version)
		}
	}
}

// Sum returns the Sum of the visible resources. Sums of layers, and of a variant over its scope, are cached, so that
// the cost is proportional to the layers above, which are small.
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
