package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// contentsAlgorithm is the number of this build's digest algorithm. The digest of a record is the first 128 bits of
// SHA-256 over two concatenated parts: its path below records/, and the 16 bytes of model.HashOf(stored value). The
// digest of a kind is the sum of the digests of its records modulo 2^128, so that one change updates it without reading
// other records.
const contentsAlgorithm = 1

// Contents counts and digests a set of records, kind by kind. It hashes the stored bytes and never encodes a record
// again, so every build computes equal Contents for the same store. A kind is the first part of the path, even where
// this build does not know the kind. The zero Contents means that nothing is known. Heads (head.go) of older builds
// have the zero Contents.
type Contents struct {
	algorithm uint32 // 0: not stated; above contentsAlgorithm: of a newer build, or malformed
	kinds     map[string]KindContents
}

// KindContents is the Contents of one kind. Two sets that differ by accident have equal values with a probability of 1
// in 2^128.
type KindContents struct {
	Count     uint64 // number of records
	high, low uint64 // the 128-bit sum of digests
}

// NewContents returns the Contents of an empty store.
func NewContents() Contents {
	return Contents{algorithm: contentsAlgorithm, kinds: map[string]KindContents{}}
}

// ContentsOf returns the Contents of a list of stored values with distinct paths.
func ContentsOf(values []Value) Contents {
	c := NewContents()
	for _, v := range values {
		c.Replace(v.Path, model.Hash{}, v.Hash())
	}
	return c
}

// Known reports whether c was computed with this build's algorithm.
func (c Contents) Known() bool { return c.algorithm == contentsAlgorithm }

// Algorithm returns the number of the digest algorithm. It is 0 for the zero Contents, and 2^32-1 for malformed
// Contents.
func (c Contents) Algorithm() uint32 { return c.algorithm }

// Clone returns a copy that is independent of c. A plain copy shares its kinds with c.
func (c Contents) Clone() Contents {
	c.kinds = maps.Clone(c.kinds)
	return c
}

// Replace updates c for a record whose stored bytes changed from the hash old to the hash now. The receiver must be
// Known. The path is below records/. The zero Hash stands for an absent record. Copies of c that were not made by Clone
// change too.
func (c Contents) Replace(path string, old, now model.Hash) {
	if old == now {
		return
	}
	name, _, _ := strings.Cut(path, "/")
	kind := c.kinds[name]
	if old != (model.Hash{}) {
		high, low := digest(path, old)
		var borrow uint64
		kind.low, borrow = bits.Sub64(kind.low, low, 0)
		kind.high, _ = bits.Sub64(kind.high, high, borrow)
		kind.Count--
	}
	if now != (model.Hash{}) {
		high, low := digest(path, now)
		var carry uint64
		kind.low, carry = bits.Add64(kind.low, low, 0)
		kind.high, _ = bits.Add64(kind.high, high, carry)
		kind.Count++
	}
	if kind == (KindContents{}) {
		delete(c.kinds, name)
		return
	}
	c.kinds[name] = kind
}

// digest returns the 128 bits that one record adds to the sum of its kind.
func digest(path string, value model.Hash) (high, low uint64) {
	room := [256]byte{}
	sum := sha256.Sum256(append(append(room[:0], path...), value[:]...))
	return binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])
}

// Kind returns the Contents of one kind, named by the first part of its paths. For a kind without records the result is
// zero.
func (c Contents) Kind(name string) KindContents { return c.kinds[name] }

// CopyKind replaces the Contents of one kind by those that the other Contents have for this kind. The receiver must be
// Known. Like Replace, CopyKind changes c and its plain copies.
func (c Contents) CopyKind(name string, other Contents) {
	if kind, is := other.kinds[name]; is {
		c.kinds[name] = kind
	} else {
		delete(c.kinds, name)
	}
}

// Kinds lists the kinds that have records, sorted; nil without records.
func (c Contents) Kinds() []string { return slices.Sorted(maps.Keys(c.kinds)) }

// Differ lists the kinds whose Contents differ, sorted. It returns nil if no kind differs, and if c or other is not
// Known.
func (c Contents) Differ(other Contents) (kinds []string) {
	if !c.Known() || !other.Known() {
		return nil
	}
	for name, kind := range c.kinds {
		if other.kinds[name] != kind {
			kinds = append(kinds, name)
		}
	}
	for name := range other.kinds {
		if _, both := c.kinds[name]; !both {
			kinds = append(kinds, name)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// value encodes c for a head; nil if c is not Known.
func (c Contents) value() *model.ContentsValue {
	if !c.Known() {
		return nil
	}
	v := &model.ContentsValue{Algorithm: c.algorithm}
	for _, name := range c.Kinds() {
		kind := c.kinds[name]
		sum := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, kind.high), kind.low)
		v.Kinds = append(v.Kinds, &model.KindContents{Kind: []byte(name), Count: kind.Count, Sum: sum})
	}
	return v
}

// contentsOf decodes the Contents of a head. Malformed Contents decode as those of an unknown algorithm.
func contentsOf(v *model.ContentsValue) Contents {
	if v.GetAlgorithm() != contentsAlgorithm {
		return Contents{algorithm: v.GetAlgorithm()}
	}
	c := NewContents()
	for _, kind := range v.Kinds {
		if len(kind.Sum) != 16 {
			return Contents{algorithm: ^uint32(0)}
		}
		c.kinds[string(kind.Kind)] = KindContents{kind.Count, binary.BigEndian.Uint64(kind.Sum), binary.BigEndian.Uint64(kind.Sum[8:])}
	}
	return c
}
