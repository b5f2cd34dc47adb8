// Package mirror keeps this replica's copy of the records: an immutable Snapshot at one complete revision, and the Change that led to it.
//
// # Data structures
//
// Snapshot is two immutable radix trees, by key and by host; a new one shares nearly all of the one before. Records whose content is the same
// keep their pointers. Change is two snapshots with the edits between them. fold (pure) is what was read of etcd: the base, which was
// complete; staged values of a batch that is not complete; sums of what is stored, to compare with the head. Mirror publishes snapshots
// to subscribers, each with a box that merges changes it has not taken yet.
//
// # One change
//
// follower watches etcd. Each transaction of the leader has a head; one that is complete ends a batch: fold.complete compares the sums of each
// kind with what the head says, makes the next snapshot of the staged values, and Mirror.publish gives it out. A kind that differs is held:
// its last good records stand, the store is listed again, and the alarm names it (held.go). A snapshot is written to the state
// directory from time to time, so that a replica can start while etcd is away (disk.go).
//
// # Invariants, held by tests
//
// A half-read state is never published. A snapshot never goes back: by the place of the head in the leaders' chain, over restarts and
// restored stores (rollback.go). A record that does not decode keeps its last good version, and is named.
//
// Owns: the current Snapshot (its loop alone).  Reads: store/kv.  Never: publishes a half-read state; writes to etcd.
package mirror
