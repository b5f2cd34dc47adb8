// Package ingest is the leader's loop: it keeps what the sources say, normalises what a change touches, and writes to the store only what
// differs.
//
// # Data structures
//
// State (pure) has the inventory, every object with its records and problems, and what is joined with it; have, the hashes that are stored; and
// queue, the keys that are to be written. What a source says in one call is a group, which is written in one batch; groups that share a
// record become one. Groups wait in a queue for each namespace, and a batch takes from these in turn, so that a busy namespace holds up
// nobody (queue.go). ledger has the budgets of tenants (tenant.go). Loop has the clock, leadership and etcd: events go into State.Step,
// effects come out (Load, Write, Seal, Wait).
//
// # One change
//
// Emit hands events to the loop. The inventory takes them (put), marks the objects that depend on them, and normalises these (store/normal).
// collect compares the records with what is wanted, enqueue puts keys into the queue, flush makes a batch, and Write is a transaction that
// holds only while this process leads (store/kv). A term begins with Load and a full comparison, in one batch. Records that somebody
// else changes are written again (foreign.go); private keys are sealed before their records are written (secrets.go).
//
// # Invariants, held by tests
//
// The store is, after the last batch, what the objects say: incrementally the same as from scratch. An edit that changes no record writes
// nothing. An object that cannot be understood, or makes this build panic (panic.go), keeps its last good records, and a policy of that
// kind closes what it selects. A loss of more than half of a kind is held until something explains it or it is accepted.
//
// Owns: the raw objects, the hashes last written.  Reads: store/normal, store/object, store/kv.  Never: writes while it does not lead; deletes
// the last good record of an object that is there and cannot be understood; writes a private key that is not sealed.
package ingest
