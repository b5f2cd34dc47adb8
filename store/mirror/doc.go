// Package mirror keeps this replica's copy of the records: an immutable Snapshot at one complete revision, and the
// Changes between snapshots.
//
// # Data structures
//
// Snapshot consists of two immutable radix trees, by key and by host. A new snapshot shares nearly all of the previous
// one. Records with equal content keep their pointers. Change is two snapshots with the edits between them.
//
// fold (pure) holds everything that was read from etcd: the base, which was complete; staged values of an incomplete
// batch; and sums of the stored records, to compare with the head. Mirror publishes snapshots to subscribers. Each
// subscriber has a box that merges the changes it has not received yet.
//
// # One change
//
// follower watches etcd. Each transaction of the leader writes a head, and a complete head ends a batch. fold.complete
// then compares the sums of each kind with the head and makes the next snapshot from the staged values. Mirror.publish
// publishes it. If a kind differs, its last good records stay in use, the store is listed again, and the status names
// the kind (held.go). Snapshots are written to the state directory from time to time, so that a replica can start while
// etcd is away (disk.go).
//
// # Invariants, held by tests
//
// A partly read state is never published. A snapshot never goes back in the leaders' chain of heads, over restarts and
// restored stores (rollback.go). A record that does not decode keeps its last good version, and the status names it.
//
// Owns: the current Snapshot (its loop alone). Reads: store/kv. Never: publishes a partly read state; writes to etcd.
package mirror
