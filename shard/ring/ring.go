// Package ring assigns proxies to replicas of the control plane. Each of 256 virtual shards has at most one owner.
//
// Owns: nothing; a Ring is immutable and safe for concurrent use.
// Reads: the given members, loads and encoded rings.
// Never: uses a clock or etcd; decides which replica may serve a proxy, because any replica can serve any proxy.
//
// A proxy's key is its namespace. Proxies of one namespace mostly have the same configuration, so they should have the
// same owner. If Assign has split a large namespace, the key is namespace/workload. The hash of the key selects the
// shard, and the ring contains the owner of each shard. All readers of one ring therefore agree.
//
// A split or join of a namespace gives other owners to streams, although no shard moves (misplaced in load.go). A new
// replica first receives the shards with the greatest part of such streams. These streams move in any case, so moving
// them to the new replica costs no further move.
//
// A split namespace that has become small stays split while replicas come and leave. The leader (the replica that
// writes rings) joins the namespace later, in a separate assignment (Resplit).
package ring

import (
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Shards is the number of virtual shards. A change of the number requires a new schema of the stored form.
const Shards = 256

// FullWeight is the greatest weight of a replica.
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
	members []Member       // sorted by name
	owners  [Shards]uint16 // index into members plus one, or 0 without an owner
	split   []string       // split namespaces, sorted
}

// Version returns the number of the ring, which is 0 for the nil Ring. Assign and Vacate increase it by one.
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

// Member returns the member with a name. It returns the zero Member and false if the ring has no such member.
func (r *Ring) Member(name string) (Member, bool) {
	members := r.Members()
	i, found := slices.BinarySearchFunc(members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return Member{}, false
	}
	return members[i], true
}

// Split reports whether a namespace is split. The proxies of a split namespace are assigned by workload.
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

// Key returns the key of a proxy, for ShardOf. The parameter workload is WORKLOAD_NAME of the proxy's node metadata, or
// node.cluster if WORKLOAD_NAME is empty.
func (r *Ring) Key(namespace, workload string) string {
	if r.Split(namespace) {
		return namespace + "/" + workload
	}
	return namespace
}

// ShardOf returns the shard of a key: 0 to Shards-1.
func ShardOf(key string) int { return int(xxhash.Sum64String(key) >> 56) }

// Holder returns the owner of a shard. It returns the zero Member and false if the shard has no owner or does not
// exist.
func (r *Ring) Holder(shard int) (Member, bool) {
	if r == nil || shard < 0 || shard >= Shards || r.owners[shard] == 0 {
		return Member{}, false
	}
	return r.members[r.owners[shard]-1], true
}

// Owner returns the replica that should serve a proxy. It returns the zero Member and false if the proxy's shard has no
// owner. The parameter workload has the meaning of Ring.Key.
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
