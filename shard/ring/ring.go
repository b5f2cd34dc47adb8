// Package ring assigns proxies to replicas: 256 virtual shards, each with one owner.
//
// Owns: nothing; a Ring is immutable.
// Reads: nothing of ours.
// Never: uses a clock or etcd; decides about correctness: any replica can serve any proxy.
//
// A proxy's key is its namespace, so that proxies of one scope have the same owner. If the leader split a large
// namespace (Assign), the key is namespace/workload. The hash of the key selects the shard. Readers only look up a
// table by that hash, so all readers of one ring agree.
//
// When a namespace is split over several shards, its streams get other owners although no shard moves. So a replica
// that joins takes first the shards to which most of such streams belong (misplaced in assign.go): these streams move
// in any case, and moving them to the new replica costs no further move. A split namespace that could be joined again
// stays split while replicas join and leave. When the replicas have been the same for a minute, an assignment of its
// own joins it (Resplit), at the pace of all moves.
package ring

import (
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Shards is the number of virtual shards. It is part of the encoding: another number is another schema.
const Shards = 256

// FullWeight is the weight of a replica with its full share.
const FullWeight = 100

// Member is a replica that may own shards.
type Member struct {
	Name    string // unique
	Address string // host:port that agents dial
	Weight  uint32 // 1 to FullWeight: its share in hundredths
}

// Ring is one assignment. The nil Ring has no members and owns nothing.
type Ring struct {
	version uint64
	members []Member       // ordered by name
	owners  [Shards]uint16 // index into members plus one; 0: none
	split   []string       // namespaces, ordered
}

// Version returns the number of the ring in its mesh; 0 for the nil Ring.
func (r *Ring) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}

// Members returns the replicas of the ring, sorted by name. The caller must not modify the slice.
func (r *Ring) Members() []Member {
	if r == nil {
		return nil
	}
	return r.members
}

// Member finds a replica of the ring by name.
func (r *Ring) Member(name string) (Member, bool) {
	members := r.Members()
	i, found := slices.BinarySearchFunc(members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return Member{}, false
	}
	return members[i], true
}

// Split reports whether a namespace is assigned by workload.
func (r *Ring) Split(namespace string) bool {
	if r == nil {
		return false
	}
	i := sort.SearchStrings(r.split, namespace)
	return i < len(r.split) && r.split[i] == namespace
}

// SplitNamespaces returns the split namespaces, sorted. The caller must not modify the slice.
func (r *Ring) SplitNamespaces() []string {
	if r == nil {
		return nil
	}
	return r.split
}

// Key returns the key of a proxy. workload is its WORKLOAD_NAME, else the cluster of its node.
func (r *Ring) Key(namespace, workload string) string {
	if r.Split(namespace) {
		return namespace + "/" + workload
	}
	return namespace
}

// ShardOf returns the shard of a key.
func ShardOf(key string) int { return int(xxhash.Sum64String(key) >> 56) }

// Holder returns the owner of a shard; false: it has no owner.
func (r *Ring) Holder(shard int) (Member, bool) {
	if r == nil || shard < 0 || shard >= Shards || r.owners[shard] == 0 {
		return Member{}, false
	}
	return r.members[r.owners[shard]-1], true
}

// Owner returns the replica that should serve a proxy; false: the ring has no owner for it.
func Owner(r *Ring, namespace, workload string) (Member, bool) {
	return r.Holder(ShardOf(r.Key(namespace, workload)))
}

// Moved returns the number of shards whose owners differ between two rings.
func Moved(a, b *Ring) int {
	moved := 0
	for s := range Shards {
		x, _ := a.Holder(s)
		y, _ := b.Holder(s)
		if x.Name != y.Name {
			moved++
		}
	}
	return moved
}

// same reports whether two rings are equal except for their version.
func same(a, b *Ring) bool {
	return a != nil && b != nil && a.owners == b.owners && slices.Equal(a.members, b.members) && slices.Equal(a.split, b.split)
}
