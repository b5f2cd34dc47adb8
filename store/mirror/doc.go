// Package mirror keeps this replica's copy of the records in etcd. A Snapshot is immutable and contains the records at
// one complete revision. A Change leads from one Snapshot to the next.
//
// # Data structures
//
// Snapshot consists of two immutable radix trees, by key and by host. A new snapshot shares nearly all of the previous
// one. Records with equal content keep their pointers. Change contains two snapshots and the edits between them.
//
// fold contains the state that was read from etcd, and has neither clock nor sockets. Its base is the last complete
// state. Its staged values belong to an incomplete batch or to a held kind. A kind is held while its stored records
// contradict the head, the record that each batch writes. fold finds contradictions by comparing digests of the stored
// records with the digests in the head. Mirror publishes snapshots to subscribers. Each subscriber has a box that
// merges the changes it has not received yet.
//
// # One change
//
// follower watches etcd. Each transaction of the leader writes a head, and a complete head ends a batch. fold.complete
// then compares the digest of each kind with the head and makes the next snapshot from the staged values.
// Mirror.publish publishes it. If a kind differs, its last good records stay in use, the store is listed again, and the
// status names the kind (held.go). Snapshots are written to the state directory from time to time, so that a replica
// can start while etcd is away (disk.go).
//
// # Invariants, checked by tests
//
// A partly read state is never published. A snapshot is never followed by the state of an earlier head, even after a
// restart of the replica or a restore of etcd (rollback.go). If a stored record does not decode, its last good version
// stays in use, and the status names the record.
//
// Owns: the current Snapshot, which only Mirror.Run replaces; the snapshot file on disk.
// Reads: store/kv.
// Never: publishes a partly read state; writes to etcd.
package mirror
