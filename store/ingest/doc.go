// Package ingest is the leader's loop: it keeps the objects that sources emit, makes the records of those that a change touches, and writes the records
// that differ from the store.
//
// # Data structures
//
// State is pure. Its parts have one direction of calls:
//
//	sources    which sources have emitted everything                                  sources.go
//	removals   events of sources -> events that apply; holds removals                 removals.go
//	inventory  events -> wanted records, problems                                     inventory.go
//	sealing    wanted Secrets -> Secrets with a sealed key                            sealing.go, reencrypt.go
//	writes     wanted and stored records -> batches                                   writes.go, queue.go, level.go
//	others     changes that others made to stored records -> keys and values to mend  foreign.go
//	wanted     the target state of the stored records                                 wanted.go
//	stored     the contents of the store, as this leader knows them                   stored.go
//
// The inventory has its objects in a lookup.Table, which knows the parsed form of joined kinds and who looked up what, and its problems in a faults.List.
// A new kind that others are joined with is a row of the table of store/ingest/lookup. The ledger has the budgets of tenants (tenant.go).
//
// The events that a source emits in one call are a group, which is written in one batch; groups that share a record become one. Groups wait in a queue for
// each namespace, and a batch takes from these in turn, so that a busy namespace delays no other one (queue.go).
//
// # One change
//
// Loop has the clock, leadership and etcd: events go into State.Step, effects come out (Load, Write, Seal, Wait). Emit hands events to the loop. The
// inventory stores them (put), marks the objects that depend on them, and normalises these (store/normal). collect hands changed keys to writes, flush
// makes a batch, and Write is a transaction that succeeds only while this process leads (store/kv). A term begins with Load and a full comparison, in one
// batch (compare.go). Records that others change are written again; private keys are sealed before their records are written.
//
// # Invariants, held by tests
//
// After the last batch the store has the records of all objects: the same after many changes as from nothing. An edit that changes no record writes nothing. An
// object that cannot be understood, or makes this build panic (panic.go), keeps its last good records, and a policy of that kind closes the workloads that it
// selects. A loss of more than half of a kind is held until something explains it or an operator accepts it.
//
// Owns: the raw objects, the hashes last written.  Reads: store/normal, store/object, store/kv.  Never: writes while it does not lead; deletes the last good
// record of an object that exists and cannot be understood; writes a private key that is not sealed.
package ingest
