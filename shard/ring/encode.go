package ring

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The stored form is protobuf, encoded by hand:
//
//	message Ring   { uint32 schema = 1; uint64 version = 2; repeated Member members = 3;
//	                 repeated uint32 owners = 4 [packed]; repeated string split = 5; }
//	message Member { string name = 1; string address = 2; uint32 weight = 3; }
//
// Members and split namespaces are sorted, so equal rings have equal bytes. Decode ignores unknown fields, because a
// newer version of Navarch may have added them.
const (
	schema = 1

	// MaxBytes, MaxMembers and MaxSplit are the maximum numbers of bytes, members and split namespaces of a ring.
	// MaxName is the maximum length of a member's name, an address or a namespace, in bytes.
	MaxBytes   = 1 << 20
	MaxMembers = 1024
	MaxSplit   = 1 << 14
	MaxName    = 512
)

// fieldMost is an upper bound in bytes for the tag and length of a text, and for the tag and value of a number.
const fieldMost = 11

// encodedMost returns an upper bound in bytes for the encoding of a ring without splits.
func encodedMost(members []Member) int {
	n := 3*fieldMost + 2*Shards
	for _, m := range members {
		n += len(m.Name) + len(m.Address) + 4*fieldMost
	}
	return n
}

// Encode returns the stored form of the ring. The nil Ring is encoded as a ring with version 0 and without members.
// Rings that Assign makes are within the bounds of Decode.
func (r *Ring) Encode() []byte {
	if r == nil {
		r = &Ring{}
	}
	b := AppendUint(nil, 1, schema)
	b = AppendUint(b, 2, r.version)
	for _, m := range r.members {
		var one []byte
		one = AppendText(one, 1, m.Name)
		one = AppendText(one, 2, m.Address)
		one = AppendUint(one, 3, uint64(m.Weight))
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), one)
	}
	packed := make([]byte, 0, 2*Shards)
	for _, owner := range r.owners {
		packed = protowire.AppendVarint(packed, uint64(owner))
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), packed)
	for _, namespace := range r.split {
		b = AppendText(b, 5, namespace)
	}
	return b
}

// Decode parses a stored ring from untrusted bytes. An error means that the bytes are malformed, have an unknown
// schema, or exceed the bounds. It is also an error if the number of owners is not Shards, or if an owner is not a
// member. Members and split namespaces must be sorted and not repeated, and all members must be valid. The schema
// number after this build's is accepted too. The Ring does not alias b.
func Decode(b []byte) (*Ring, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("ring: %d bytes, at most %d", len(b), MaxBytes)
	}
	r, read, owners := &Ring{}, uint64(0), false
	err := Fields(b, func(field protowire.Number, number uint64, bytes []byte) (err error) {
		switch field {
		case 1:
			read = number
		case 2:
			r.version = number
		case 3:
			err = r.decodeMember(bytes)
		case 4:
			err, owners = r.decodeOwners(bytes), true
		case 5:
			err = r.decodeSplit(string(bytes))
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ring: %w", err)
	case read == 0 || read > schema+1:
		return nil, fmt.Errorf("ring: schema %d, this build reads up to %d", read, schema+1)
	case !owners:
		return nil, errors.New("ring: no owners")
	}
	for s, owner := range r.owners {
		if int(owner) > len(r.members) {
			return nil, fmt.Errorf("ring: shard %d has owner %d, but the ring has %d members", s, owner, len(r.members))
		}
	}
	return r, nil
}

func (r *Ring) decodeMember(b []byte) error {
	var m Member
	weight := uint64(0)
	err := Fields(b, func(field protowire.Number, number uint64, bytes []byte) error {
		switch field {
		case 1:
			m.Name = string(bytes)
		case 2:
			m.Address = string(bytes)
		case 3:
			weight = number
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n := len(r.members); n == MaxMembers || n > 0 && r.members[n-1].Name >= m.Name {
		return fmt.Errorf("member %q: the ring has more than %d members, or they are not sorted by name", clip(m.Name), MaxMembers)
	}
	if weight > FullWeight {
		return fmt.Errorf("member %q: weight %d is too large", clip(m.Name), weight)
	}
	m.Weight = uint32(weight)
	if !m.valid() {
		return fmt.Errorf("member %q at %q with weight %d is not valid", clip(m.Name), clip(m.Address), m.Weight)
	}
	r.members = append(r.members, m)
	return nil
}

func (m Member) valid() bool {
	return m.Name != "" && len(m.Name) <= MaxName && len(m.Address) <= MaxName && m.Weight > 0 && m.Weight <= FullWeight
}

func (r *Ring) decodeOwners(b []byte) error {
	for s := range Shards {
		owner, n := protowire.ConsumeVarint(b)
		if n < 0 || owner > MaxMembers {
			return fmt.Errorf("owner of shard %d is missing or invalid", s)
		}
		r.owners[s], b = uint16(owner), b[n:]
	}
	if len(b) > 0 {
		return fmt.Errorf("more than %d shards", Shards)
	}
	return nil
}

func (r *Ring) decodeSplit(namespace string) error {
	n := len(r.split)
	if n == MaxSplit || len(namespace) > MaxName || n > 0 && r.split[n-1] >= namespace {
		return fmt.Errorf("split namespace %q: the name is too long, there are more than %d, or they are not sorted", clip(namespace), MaxSplit)
	}
	r.split = append(r.split, strings.Clone(namespace))
	return nil
}

// clip shortens untrusted text for errors.
func clip(s string) string { return s[:min(len(s), 64)] }
