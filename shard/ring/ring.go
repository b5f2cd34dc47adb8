// Package ring assigns proxies to replicas by 256 virtual shards, each with at most one owner.
//
// Owns: nothing; a Ring is immutable and safe for concurrent use.
// Reads: the given members, loads and encoded rings.
// Never: uses a clock or etcd; affects correctness, because any replica can serve any proxy.
//
// A proxy's key is its namespace, so that proxies of one namespace, which mostly have the same configuration, have the
// same owner. If the leader split a large namespace (Assign), the key is namespace/workload. The hash of the key
// selects the shard, and the ring contains the owner of each shard. All readers of one ring therefore agree.
//
// When a namespace is split over several shards, its streams get other owners although no shard moves. A replica that
// joins therefore receives first the shards with the most such streams (misplaced in load.go). These streams move in
// any case, so moving them to the new replica costs no further move.
//
// A split namespace that could be joined again stays split while replicas join and leave. The leader joins it in a
// separate assignment, once the join has been due for a minute without another ring (Resplit). The namespace's proxies
// then move at the usual pace.
package ring

import (
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Shards is the number of virtual shards. A change of the number requires a new schema of the encoding.
const Shards = 256

// FullWeight is the weight of a replica with its full share.
const FullWeight = 100

// Member is a replica that may own shards.
type Member struct {
	Name    string // unique in a ring, 1 to MaxName bytes
	Address string // host:port that agents dial, at most MaxName bytes; its form is not checked
	Weight  uint32 // 1 to FullWeight; shares of the load are proportional to the weights
}

// Ring is one immutable assignment of shards to members. Assign, Vacate and Decode create it. The nil Ring has no
// members and no owners, and its methods may be called.
type Ring struct {
	version uint64
	members []Member       // ordered by name
	owners  [Shards]uint16 // index into members plus one; 0: no owner
	split   []string       // namespaces, ordered
}

// Version returns the number of the ring, which Assign and Vacate increase by one; 0 for the nil Ring.
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

// Member returns the member with a name; false and a zero Member mean that the ring has no such member.
func (r *Ring) Member(name string) (Member, bool) {
	members := r.Members()
	i, found := slices.BinarySearchFunc(members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return Member{}, false
	}
	return members[i], true
}

// Split reports whether a namespace is split: its proxies are then assigned by workload.
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

// Key returns the key of a proxy, for ShardOf. workload is WORKLOAD_NAME of the node metadata, or the node's cluster
// if WORKLOAD_NAME is empty.
func (r *Ring) Key(namespace, workload string) string {
	if r.Split(namespace) {
		return namespace + "/" + workload
	}
	return namespace
}

// ShardOf returns the shard of a key: 0 to Shards-1.
func ShardOf(key string) int { return int(xxhash.Sum64String(key) >> 56) }

// Holder returns the owner of a shard; false: the shard has no owner or does not exist.
func (r *Ring) Holder(shard int) (Member, bool) {
	if r == nil || shard < 0 || shard >= Shards || r.owners[shard] == 0 {
		return Member{}, false
	}
	return r.members[r.owners[shard]-1], true
}

// Owner returns the replica that should serve a proxy; false: the shard of the proxy has no owner.
func Owner(r *Ring, namespace, workload string) (Member, bool) {
	return r.Holder(ShardOf(r.Key(namespace, workload)))
}

// Moved returns the number of shards whose owners have different names in two rings. Each ring may be nil.
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
