// Package ingest is the loop of the leading process. It receives the objects that sources (a folder, Kubernetes) emit,
// converts ("normalises") the objects that a change affects to records, and writes the records that differ from those
// in etcd ("the store").
//
// # Data structures
//
// State is the ingester without the clock and etcd. State calls the parts below, and no part calls State. The parts
// removals, sealing and others call the parts inventory, wanted, stored and writes. The parts are:
//
//	sources    which sources have emitted everything                                  sources.go
//	removals   events of sources -> events that apply; holds removals back            removals.go
//	inventory  events -> wanted records, problems                                     inventory.go
//	sealing    wanted Secrets -> Secrets with a sealed key                            sealing.go, reencrypt.go
//	writes     wanted and stored records -> batches                                   writes.go, queue.go, level.go
//	others     changes by other writers -> keys to write again, values to restore     foreign.go
//	wanted     the target state of the stored records                                 wanted.go
//	stored     the contents of the store, as this leader knows them                   stored.go
//
// The inventory stores its objects in a lookup.Table. For each object the table also stores the names that were looked
// up during its normalisation. Some kinds, such as Pods and Namespaces, are looked up by other objects. For these kinds
// the table also stores the parsed form. Each of them has a row in store/ingest/lookup. The problems of the inventory
// are in a faults.List. The ledger of tenants is in the inventory's budgets (budget.go, tenant.go).
//
// # One change
//
// Loop provides the clock, leadership and etcd. State.Step takes an event and returns effects (Load, Write, Seal,
// Reencrypt, Recall, Wait). Loop carries out the effects. Loop.Emit takes the events of sources. The inventory stores
// their objects (put), marks all objects that depend on them, and normalises the marked objects (store/normal). collect
// passes changed keys to writes, and flush makes a batch. The effect Write commits the batch in a transaction that
// succeeds only while this process leads (store/kv). A term of leadership begins with the effect Load. All records are
// then compared with the store, which makes one batch (compare.go). Records that other writers change are written
// again. Secrets with a private key are written later, once the key is sealed.
//
// # Budgets of tenants
//
// The ledger decides which objects fit the budget of a tenant. Each normalised object is offered to the ledger, and
// admitted objects are applied. A budget bounds objects, bytes and weights (store/weight). The weight of an object
// depends on facts about other records, for example on the clusters of a host. The weight is computed again only if
// such a fact may have changed (weights.go). An edit therefore costs nothing for refused objects that do not depend on
// the edited object. An admitted object is never dropped because of a budget. If a limit is lowered, or a label joins
// namespaces to one tenant, only growth is refused. A new leader counts stored objects as admitted, with their stored
// sizes. The leader offers new and changed objects in the order of creation time, namespace and name. The labels that
// join namespaces are stored under the key tenants/labels, for /debug of every replica (store/tenants).
//
// # Turns of namespaces
//
// Calls of Emit wait in a line (line.go), in which namespaces take turns. Loop applies calls for 25 ms, then carries
// out the effects. So a change waits for one call of each other namespace, even if a tenant has emitted many calls
// before. A call about several namespaces is divided by namespace if one of them has more than 8 earlier calls
// (maxBefore). An undivided call waits for the earlier calls of all its namespaces. The calls of one namespace are
// applied in their order. Calls about a whole source keep their place among all calls.
//
// # Batches
//
// The events that a source emits in one call are a group (queue.go) and are written in one batch. Two groups that share
// a record are joined at the place of the older one, so at most one version of each record waits. Groups wait in
// queues, one for each namespace. A group of several namespaces waits in the shortest of their queues. A batch is
// filled from the queues in turn, up to the size of one transaction of etcd. A group that no longer fits into a batch
// comes first in the next batch. A group larger than one transaction waits for one batch if other queues have groups.
// After that it is written in a batch of several transactions.
//
// Two changes of one object keep their order. They share a record, so their groups are joined, and a batch contains
// the newest version of each record.
//
// Changes of different objects that were not emitted together may change their order, even in one namespace. The later
// change may be joined with an older group, and is then written at the place of that group. The earlier change may be
// in a group of several namespaces, which waits in the queue of another namespace. The earlier change may also be a
// Secret whose private key is not sealed yet, or a removal that is held back. Changes of two namespaces may change
// their order, as with two informers of Kubernetes. A route may be seen before a service that another, busy namespace
// changed earlier. In all other cases, groups of one namespace are written in their order.
//
// The first comparison of a new leader makes one batch. The folder source (store/source/files) emits a burst of changes
// in one call if the burst ends within 0.3 s. While changes go on without a pause, it emits them every 60 ms with one
// call for each namespace, so that the next batch need not contain all of them.
//
// # Invariants, checked by tests
//
// After the last batch the store has the records of all objects. These records do not depend on the history of changes.
// An edit that changes no record writes nothing. An object that is unreadable, or makes this build panic (panic.go),
// keeps its last good records. If a policy has no good records, the workloads that it selects refuse all requests. If
// the selector is unreadable, all workloads of the policy's namespace refuse all requests. An object may vanish without
// a deletion by the API server, or with many others from a folder. Its records then stay until the object is back, an
// operator accepts the removal, or the time limit is over (store/removal).
//
// Owns: the objects as emitted by sources, the hashes of the stored records.
// Reads: store/normal, store/object, store/kv.
// Never: writes while it does not lead; deletes the last good record of an unreadable object; writes a private key that
// is not sealed.
package ingest
