// Package ingest is the loop of the leading process. It receives the objects that sources (a folder, Kubernetes) emit,
// normalises the objects that a change affects to records, and writes the records that differ from etcd ("the store").
//
// # Data structures
//
// State is the ingester without clock and store. State calls its parts. The parts removals, sealing and others call
// inventory, wanted, stored and writes. No part calls State. The parts are:
//
//	sources    which sources have emitted everything                                  sources.go
//	removals   events of sources -> events that apply; holds removals                 removals.go
//	inventory  events -> wanted records, problems                                     inventory.go
//	sealing    wanted Secrets -> Secrets with a sealed key                            sealing.go, reencrypt.go
//	writes     wanted and stored records -> batches                                   writes.go, queue.go, level.go
//	others     changes by other writers -> keys to write again, values to restore     foreign.go
//	wanted     the target state of the stored records                                 wanted.go
//	stored     the contents of the store, as this leader knows them                   stored.go
//
// The inventory stores its objects in a lookup.Table. For each object the table also stores the names that its
// normalisation looked up. For kinds that other objects are joined with, such as Pods and Namespaces, it stores the
// parsed form. A further kind of this sort is a new row in store/ingest/lookup. The problems of the inventory are in
// a faults.List. The ledger of tenants is in the inventory's budgets (budget.go, tenant.go).
//
// # One change
//
// Loop has the clock, leadership and etcd. Events go into State.Step, and effects come out (Load, Write, Seal,
// Reencrypt, Recall, Wait). Emit passes events of sources to the loop. The inventory stores their objects (put), marks
// all objects that depend on them, and normalises the marked objects (store/normal). collect passes changed keys to
// writes, flush makes a batch, and Write is a transaction that succeeds only while this process leads (store/kv). A
// term begins with Load and a full comparison, in one batch (compare.go). Records that other writers change are written
// again. Secrets with a private key are written later, once the key is sealed.
//
// # Budgets of tenants
//
// The ledger decides which objects fit the budget of a tenant. Each normalised object is offered to it, and the
// admitted objects are applied. The resources of a budget are objects, bytes and weights (store/weight). An offered
// object is read for its weight once. Its weight depends on facts about other records: the clusters of a host, the
// rules for it, a delegate. The weight is computed again only if such a fact may have changed (weights.go), so an edit
// costs nothing for refused objects that do not depend on it. An admitted object is never dropped because of a budget:
// if a limit is lowered, or a label joins namespaces, only growth is refused. A new leader counts stored objects as
// admitted (the load contains their sizes). It offers new and changed objects in the order of creation time, namespace
// and name. The leader writes the labels that join namespaces to tenants/labels, for /debug of every replica
// (store/tenants).
//
// # Turns of namespaces
//
// Calls of Emit wait in a line (line.go), in which namespaces take turns. Loop applies calls for 25 ms, then carries
// out the effects. So a change waits for one call of each other namespace, however much a tenant has emitted before it.
// A call about several namespaces is applied as a whole if each of these namespaces has at most 8 earlier calls
// (maxBefore). It then waits for these earlier calls. Otherwise the call is divided by namespace. The calls of one
// namespace are applied in their order. Calls about a whole source keep their place among all calls.
//
// # Batches
//
// The events that a source emits in one call are a group (queue.go) and are written in one batch. Two groups that
// share a record are joined at the place of the older one, so at most one version of each record waits. Groups wait
// in queues, one for each namespace. A group of several namespaces waits in the shortest of their queues. A batch is
// filled from the queues in turn, up to one transaction of etcd. A group that does not fit into the rest of a batch
// is served first in the next batch. A group larger than one transaction first lets groups of other queues pass for
// one batch, if any wait. Then it is written in a batch of several transactions.
//
// Two changes of one object keep their order. They share a record, so their groups are joined, and a batch contains
// the newest version of each record.
//
// Changes of different objects that were not emitted together may change their order, even in one namespace. The
// later change may be joined with an older group, and is then written at the place of that group. The earlier change
// may be in a group of several namespaces, which waits in the queue of another namespace. It may be a Secret whose
// private key is not sealed yet, or a held removal. Changes of two namespaces change their order as with two
// informers of Kubernetes: a route may be seen before a service that another, busy namespace changed earlier.
// Otherwise the groups of one namespace are written in their order.
//
// A new leader's comparison is one batch. The folder source (store/source/files) emits a burst of changes in one call
// if the burst ends within 0.3 s. While changes go on without a pause, it emits them every 60 ms with one call for
// each namespace, so that the next batch need not contain all of them.
//
// # Invariants, held by tests
//
// After the last batch the store has the records of all objects, the same for any history of changes. An edit that
// changes no record writes nothing. An object that is unreadable, or makes this build panic (panic.go), keeps its last
// good records. A policy without good records closes the workloads that it selects, which means that they refuse all
// requests. If the selector is unreadable, the policy closes its whole namespace. Objects that vanish without a
// deletion by the API server, or in large numbers from a folder, are held until they are back, an operator accepts the
// removal, or its time is over (store/removal).
//
// Owns: the raw objects, the hashes last written.
// Reads: store/normal, store/object, store/kv.
// Never: writes while it does not lead; deletes the last good record of an unreadable object; writes a private key that
// is not sealed.
package ingest
