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

// contentsAlgorithm is how this build digests records. A record counts as the first 128 bits of the SHA-256 of its path below records/
// and model.HashOf its value as stored, which has 16 bytes. The digest of a kind is the sum of its records modulo 2^128, so that it
// follows each change without a look at the other records (issue 12, item 12).
const contentsAlgorithm = 1

// Contents says what a set of records is, kind by kind: how many, and a digest. It is of bytes as they are stored, never of what a
// build would encode, so builds that would encode differently have the same Contents. A kind is the first part of the path, also one
// that this build does not know. The zero Contents says nothing: it is that of a head which an older build wrote.
type Contents struct {
	algorithm uint32 // 0: nobody says; above contentsAlgorithm: a newer build says, and this one does not understand it
	kinds     map[string]KindContents
}

// KindContents is the Contents of one kind. Equal values are equal sets of records, but for accidents of one in 2^128.
type KindContents struct {
	Count     uint64
	high, low uint64 // the sum
}

// NewContents says that there are no records.
func NewContents() Contents {
	return Contents{algorithm: contentsAlgorithm, kinds: map[string]KindContents{}}
}

// ContentsOf says what a list of stored values is.
func ContentsOf(values []Value) Contents {
	c := NewContents()
	for _, v := range values {
		c.Replace(v.Path, model.Hash{}, v.Hash())
	}
	return c
}

// Known tells whether it says something that this build understands.
func (c Contents) Known() bool { return c.algorithm == contentsAlgorithm }

// Algorithm is 0 where nobody says what the records are; one that is not 0 and not Known is of a newer build.
func (c Contents) Algorithm() uint32 { return c.algorithm }

// Clone is one that can be changed without changing this one.
func (c Contents) Clone() Contents {
	c.kinds = maps.Clone(c.kinds)
	return c
}

// Replace follows a change of the record at a path below records/, from one hash of its stored bytes to another; the zero Hash: there is
// no record. It changes c, which must be Known, and every copy of it that is no Clone.
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

// digest is what one record counts as.
func digest(path string, value model.Hash) (high, low uint64) {
	room := [256]byte{}
	sum := sha256.Sum256(append(append(room[:0], path...), value[:]...))
	return binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])
}

// Kind is what is said of one kind, by the name that paths begin with.
func (c Contents) Kind(name string) KindContents { return c.kinds[name] }

// CopyKind makes what is said of one kind what other says of it. It changes c, as Replace does.
func (c Contents) CopyKind(name string, other Contents) {
	if kind, is := other.kinds[name]; is {
		c.kinds[name] = kind
	} else {
		delete(c.kinds, name)
	}
}

// Kinds lists the kinds of which there are records, sorted.
func (c Contents) Kinds() []string { return slices.Sorted(maps.Keys(c.kinds)) }

// Differ lists the kinds of which two say different things, sorted; nil where one of them is not Known: nothing is compared then.
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

// value is c in a head; nil where it says nothing that this build understands.
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

// contentsOf reads what a head says. What is not well-formed is as an algorithm that this build does not know.
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
