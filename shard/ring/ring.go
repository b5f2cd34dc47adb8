// Package ring says which replica owns which proxies: 256 virtual shards, each with one owner.
//
// Owns: nothing; a Ring never changes.  Reads: nothing of ours.  Never: a clock, etcd; it decides nothing about
// correctness: any replica can serve any proxy.
//
// A proxy's key is its namespace, so that proxies of one scope sit together, or namespace/workload where the leader split
// a namespace that is too large for that (Assign). The key's hash is its shard. Readers look up a table and compute
// nothing but that hash, so all that have one ring agree.
package ring

import (
	"slices"
	"sort"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Shards is the number of virtual shards. It is part of the encoding: another number is another schema.
const Shards = 256

// FullWeight is the weight of a replica that takes its whole share.
const FullWeight = 100

// Member is a replica that may own shards.
type Member struct {
	Name    string // unique
	Address string // host:port where agents find it
	Weight  uint32 // 1 to FullWeight: how large a share it takes, in hundredths
}

// Ring is one assignment. The nil Ring has no members and owns nothing.
type Ring struct {
	version uint64
	members []Member       // ordered by name
	owners  [Shards]uint16 // index into members plus one; 0: nobody
	split   []string       // namespaces, ordered
}

// Version counts the rings of a mesh; 0 for the nil Ring.
func (r *Ring) Version() uint64 {
	if r == nil {
		return 0
	}
	return r.version
}

// Members are the replicas of the ring in order of their names. The caller must not change the slice.
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

// Split says whether a namespace is assigned workload by workload.
func (r *Ring) Split(namespace string) bool {
	if r == nil {
		return false
	}
	i := sort.SearchStrings(r.split, namespace)
	return i < len(r.split) && r.split[i] == namespace
}

// SplitNamespaces are the namespaces that are split, in order. The caller must not change the slice.
func (r *Ring) SplitNamespaces() []string {
	if r == nil {
		return nil
	}
	return r.split
}

// Key is what a proxy is placed by. workload is its WORKLOAD_NAME, else the cluster of its node.
func (r *Ring) Key(namespace, workload string) string {
	if r.Split(namespace) {
		return namespace + "/" + workload
	}
	return namespace
}

// ShardOf is the shard of a key.
func ShardOf(key string) int { return int(xxhash.Sum64String(key) >> 56) }

// Holder is the replica that owns a shard; false where nobody does.
func (r *Ring) Holder(shard int) (Member, bool) {
	if r == nil || shard < 0 || shard >= Shards || r.owners[shard] == 0 {
		return Member{}, false
	}
	return r.members[r.owners[shard]-1], true
}

// Owner is the replica that should serve a proxy; false where the ring has none.
func Owner(r *Ring, namespace, workload string) (Member, bool) {
	return r.Holder(ShardOf(r.Key(namespace, workload)))
}

// Moved is how many shards have another owner in one ring than in another.
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

// same says whether two rings differ in nothing but their version.
func same(a, b *Ring) bool {
	return a != nil && b != nil && a.owners == b.owners && slices.Equal(a.members, b.members) && slices.Equal(a.split, b.split)
}
