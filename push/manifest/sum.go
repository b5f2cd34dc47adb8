package manifest

import (
	"hash/maphash"
	"math/bits"
)

// Sum is a digest of a set of names with versions. It does not depend on the order in which the names are added. Sums
// can be compared with ==. Different sets have equal sums with a probability of 2^-64. Clients cannot influence this
// probability, because each process has a random seed. Sums of different processes therefore cannot be compared. A name
// that is added twice counts twice. The zero Sum is the sum of the empty set.
type Sum struct {
	Names    NameSum // the digest of the names
	versions uint64
}

// NameSum is a digest of a set of names, with the properties of Sum.
type NameSum struct {
	Len   int // number of names
	Bytes int // length of all names in bytes
	names uint64
}

// The seeds of the hashes of names and of versions.
var nameSeed, versionSeed = maphash.MakeSeed(), maphash.MakeSeed()

// Add adds a name with its version to the set. It is not safe for concurrent use.
func (s *Sum) Add(name, version string) {
	h := maphash.String(nameSeed, name)
	s.Names.add(h, 1, len(name))
	s.versions += paired(h, version)
}

// Add adds a name to the set. It is not safe for concurrent use.
func (s *NameSum) Add(name string) { s.add(maphash.String(nameSeed, name), 1, len(name)) }

// Remove removes a name from the set. The name must have been added. Remove is not safe for concurrent use.
func (s *NameSum) Remove(name string) { s.add(maphash.String(nameSeed, name), -1, len(name)) }

// add adds a name if times is 1, and removes it if times is -1. The name is given by its hash and its length in bytes.
func (s *NameSum) add(hash uint64, times, length int) {
	s.Len += times
	s.Bytes += times * length
	s.names += uint64(times) * spread(hash)
}

// paired combines the hash of a name with its version. If two names exchange their versions, their Sum changes.
func paired(name uint64, version string) uint64 {
	return spread(bits.RotateLeft64(name, 23) ^ maphash.String(versionSeed, version))
}

// spread mixes the bits of a hash before the hash is added to a sum.
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

// merge adds the names and versions of another set.
func (s *Sum) merge(o Sum) {
	s.Names.Len += o.Names.Len
	s.Names.Bytes += o.Names.Bytes
	s.Names.names += o.Names.names
	s.versions += o.versions
}

// sum returns the Sum of all resources that are not markers (made by Hidden or Pending). The first call computes it.
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

// cover adds the layer upper to s. Before the call, s is the Sum of below, the layers under upper.
func (s *Sum) cover(below Stack, upper *Manifest) {
	s.merge(upper.sum())
	for r := range upper.All() {
		if under := below.Get(r.Name); under != nil {
			s.remove(under.Name, under.Version)
		}
	}
}

// Sum returns the Sum of the visible resources. The sum of each manifest is cached, and the common sum of the layers
// Scope and Variant. Further calls therefore read only the layers Workload and Overlay, which are small.
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
