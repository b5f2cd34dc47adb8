// Package member maintains this replica's record in etcd, and follows the records of all replicas (the fleet). A record
// has the address, state and load of its replica.
//
// Owns: members/<name>, under a lease.
// Reads: members/, level/current, the ring (shard/ring).
// Never: decides which replica owns a shard; delays the serving of proxies while etcd does not answer.
package member

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/shard/ring"
)

// Folder is the folder of the records, below the prefix of the mesh in etcd.
const Folder = "members/"

// State is the phase of a replica's life. The zero State is invalid.
type State uint8

// The states in their order. A replica is Warming until Member.Ready is called, and a Ready replica may own shards.
// After Member.Leave the replica is Leaving. While the level (format) of stored configuration is too new for a Ready
// replica, its record says Warming.
const (
	Warming State = iota + 1
	Ready
	Leaving
)

// String returns "warming", "ready" or "leaving", for messages and metrics. For other values it returns "state" and the
// number.
func (s State) String() string {
	switch s {
	case Warming:
		return "warming"
	case Ready:
		return "ready"
	case Leaving:
		return "leaving"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Record is a replica's own report.
type Record struct {
	Name        string // name of the replica, unique in the mesh
	Address     string // host:port that agents dial; empty: unknown
	Zone        string // may be empty
	Version     string // version of the build; may be empty
	Incarnation uint64 // differs at each start of the process
	State       State
	Weight      uint32    // 1 to ring.FullWeight; grows while a new replica ramps up
	Revision    int64     // etcd's revision of the snapshot that the replica serves
	Level       uint32    // newest level of stored configuration (model.Level) that its build reads; at least 1
	Load        ring.Load // served streams, and streams that wait for admission
	Sums        []byte    // encoded counts of the replica's proxies, for tools; at most MaxSums bytes; empty: unknown
}

// Member returns the name, address and weight of the replica as a member of the ring.
func (r Record) Member() ring.Member {
	return ring.Member{Name: r.Name, Address: r.Address, Weight: r.Weight}
}

// The wire format is protobuf, written by hand. Unknown fields are ignored:
//
//	message Record    { uint32 schema = 1; string name = 2; string address = 3; string zone = 4; string version = 5;
//	                    uint64 incarnation = 6; uint32 state = 7; uint32 weight = 8; int64 revision = 9;
//	                    uint64 rest = 10; repeated Namespace namespaces = 11; uint32 level = 12;
//	                    bytes sums = 13; }
//	message Namespace { string name = 1; uint64 streams = 2; repeated Workload workloads = 3; }
//	message Workload  { string name = 1; uint64 streams = 2; }
const (
	schema     = 1
	maxBytes   = 256 << 10 // maximum length of a decoded record; written records stay below 64 KiB (Streams.Load)
	maxEntries = 1 << 14   // maximum number of namespaces and workloads in one record
	maxStreams = 1 << 24   // maximum number of streams of one namespace or workload
	maxLevel   = 1 << 16
	// MaxSums bounds Record.Sums, in bytes. Encode leaves out longer Sums. Decode refuses a record with longer Sums.
	MaxSums = 4 << 10
)

// Encode returns the stored form of the record, in a new slice. Equal records have equal bytes. Sums longer than
// MaxSums are left out. Encode does not validate the record.
func (r Record) Encode() []byte {
	b := ring.AppendUint(nil, 1, schema)
	b = ring.AppendText(b, 2, r.Name)
	b = ring.AppendText(b, 3, r.Address)
	b = ring.AppendText(b, 4, r.Zone)
	b = ring.AppendText(b, 5, r.Version)
	b = ring.AppendUint(b, 6, r.Incarnation)
	b = ring.AppendUint(b, 7, uint64(r.State))
	b = ring.AppendUint(b, 8, uint64(r.Weight))
	b = ring.AppendUint(b, 9, uint64(r.Revision))
	b = ring.AppendUint(b, 10, uint64(r.Load.Rest))
	if r.Level > 1 {
		b = ring.AppendUint(b, 12, uint64(r.Level))
	}
	if n := len(r.Sums); n > 0 && n <= MaxSums {
		b = protowire.AppendBytes(protowire.AppendTag(b, 13, protowire.BytesType), r.Sums)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Load.Namespaces)) {
		n := r.Load.Namespaces[name]
		one := entry(name, n.Streams)
		for _, workload := range slices.Sorted(maps.Keys(n.Workloads)) {
			one = protowire.AppendBytes(protowire.AppendTag(one, 3, protowire.BytesType), entry(workload, n.Workloads[workload]))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 11, protowire.BytesType), one)
	}
	return b
}

func entry(name string, streams int) []byte {
	return ring.AppendUint(ring.AppendText(nil, 1, name), 2, uint64(streams))
}

// Decode parses a stored record from untrusted bytes. The result does not alias the bytes. Load.Namespaces of the
// result is never nil, and a missing level is 1. Decode returns a zero Record and an error in these cases:
//
//   - The record has more than 256 KiB or is malformed.
//   - The schema is missing, or more than one above this build's.
//   - The name is missing.
//   - The state or the weight is missing or invalid.
//   - Another value, or the number of namespaces and workloads, is above its bound.
func Decode(b []byte) (Record, error) {
	if len(b) > maxBytes {
		return Record{}, fmt.Errorf("member record: %d bytes, at most %d", len(b), maxBytes)
	}
	d := decoder{record: Record{Level: 1, Load: ring.Load{Namespaces: map[string]ring.NamespaceLoad{}}}}
	if err := ring.Fields(b, d.field); err != nil {
		return Record{}, fmt.Errorf("member record: %w", err)
	}
	r := d.record
	switch {
	case d.schema == 0 || d.schema > schema+1:
		return Record{}, fmt.Errorf("member record: schema %d, this build reads up to %d", d.schema, schema+1)
	case r.Name == "":
		return Record{}, errors.New("member record: no name")
	case r.State < Warming || r.State > Leaving:
		return Record{}, fmt.Errorf("member record of %q: %v", r.Name, r.State)
	case r.Weight == 0 || r.Weight > ring.FullWeight:
		return Record{}, fmt.Errorf("member record of %q: weight %d", r.Name, r.Weight)
	}
	return r, nil
}

type decoder struct {
	record  Record
	schema  uint64
	entries int
}

func (d *decoder) field(field protowire.Number, number uint64, bytes []byte) error {
	if field >= 2 && field <= 5 && len(bytes) > ring.MaxName ||
		field == 13 && len(bytes) > MaxSums ||
		field == 8 && number > ring.FullWeight || field == 10 && number > maxStreams || field == 12 && number > maxLevel {
		return fmt.Errorf("field %d is out of bounds", field)
	}
	r := &d.record
	switch field {
	case 1:
		d.schema = number
	case 2:
		r.Name = string(bytes)
	case 3:
		r.Address = string(bytes)
	case 4:
		r.Zone = string(bytes)
	case 5:
		r.Version = string(bytes)
	case 6:
		r.Incarnation = number
	case 7:
		r.State = State(min(number, 255))
	case 8:
		r.Weight = uint32(number)
	case 9:
		r.Revision = int64(number)
	case 10:
		r.Load.Rest = int(number)
	case 11:
		return d.namespace(bytes)
	case 12:
		r.Level = max(uint32(number), 1)
	case 13:
		r.Sums = slices.Clone(bytes)
	}
	return nil
}

func (d *decoder) namespace(b []byte) error {
	var n ring.NamespaceLoad
	name, streams, err := d.entry(b, func(raw []byte) error {
		workload, count, err := d.entry(raw, nil)
		if n.Workloads == nil {
			n.Workloads = map[string]int{}
		}
		n.Workloads[workload] = count
		return err
	})
	n.Streams = streams
	d.record.Load.Namespaces[name] = n
	return err
}

func (d *decoder) entry(b []byte, nested func([]byte) error) (name string, streams int, err error) {
	if d.entries++; d.entries > maxEntries {
		return "", 0, fmt.Errorf("more than %d namespaces and workloads", maxEntries)
	}
	err = ring.Fields(b, func(field protowire.Number, number uint64, bytes []byte) error {
		switch {
		case field == 1 && len(bytes) > ring.MaxName || field == 2 && number > maxStreams:
			return fmt.Errorf("field %d of a load is out of bounds", field)
		case field == 1:
			name = string(bytes)
		case field == 2:
			streams = int(number)
		case field == 3 && nested != nil:
			return nested(bytes)
		}
		return nil
	})
	return name, streams, err
}
