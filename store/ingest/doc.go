// Package ingest is the leader's loop: it keeps the objects that sources emit, makes the records of those that a change
// touches, and writes the records that differ from the store.
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
// The inventory has its objects in a lookup.Table, which knows the parsed form of joined kinds and who looked up what,
// and its problems in a faults.List. A new kind that others are joined with is a row of the table of
// store/ingest/lookup. budgets has the ledger of tenants (budget.go, tenant.go).
//
// # One change
//
// Loop has the clock, leadership and etcd: events go into State.Step, effects come out (Load, Write, Seal, Wait). Emit
// hands events to the loop. The inventory stores them (put), marks the objects that depend on them, and normalises
// these (store/normal). collect hands changed keys to writes, flush makes a batch, and Write is a transaction that
// succeeds only while this process leads (store/kv). A term begins with Load and a full comparison, in one batch
// (compare.go). Records that others change are written again; private keys are sealed before their records are written.
//
// # Budgets of tenants
//
// The ledger decides which objects of a tenant there is room for. It is offered each normalised object, and the
// accepted ones are applied. Its resources are objects, bytes and weights (store/weight). An offered object is read for
// its weight once. It is weighed again only if a fact that its weight depends on (clusters of a host, rules for it, a
// delegate) may differ by then (weights.go), so an edit costs nothing for objects that were refused beside it. An
// accepted object is never dropped for its budget: where a limit is lowered, or a label joins namespaces, only growth
// is refused. A new leader counts what is stored as accepted (the stored bytes come with the load), and offers what
// differs in the order of creation time, namespace and name. The leader writes to tenants/labels which namespaces a
// label joins, for /debug of every replica (store/tenants).
//
// # Batches
//
// The events that a source emits in one call are a group (queue.go) and are written in one batch. Two groups that
// share a record become one, in the place of the older, so at most one version of each record waits. Groups wait in
// queues, one for each namespace; a group of several namespaces waits in the queue where the fewest wait. A batch
// takes from the queues in turn until it fills one transaction of etcd. A larger group is written in several
// transactions, after other groups were let through once.
//
// So changes of one namespace keep their order. Changes of two namespaces that were not emitted together may change
// their order: a route may be seen before a service that another, busy namespace changed earlier, as with two
// informers of Kubernetes. A new leader's comparison is one batch. The source files emits a burst of changes in one
// call if the burst ends within 0.3 s. Changes of files that go on without a pause are emitted every 60 ms, each
// namespace's in a call of its own, so that the next batch need not hold all of them.
//
// # Invariants, held by tests
//
// After the last batch the store has the records of all objects: the same after many changes as from nothing. An edit
// that changes no record writes nothing. An object that cannot be understood, or makes this build panic (panic.go),
// keeps its last good records, and a policy of that kind closes the workloads that it selects. A loss of more than half
// of a kind is held until something explains it or an operator accepts it.
//
// Owns: the raw objects, the hashes last written.  Reads: store/normal, store/object, store/kv.  Never: writes while it
// does not lead; deletes the last good record of an object that exists and cannot be understood; writes a private key
// that is not sealed.
package ingest
