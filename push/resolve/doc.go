// Package resolve replaces references to sets of records by direct ones. It is between the mirror's snapshot and the
// plan, which finds everything that it needs for a record in the resolved snapshot under the record's own key.
//
//   - A VirtualService that delegates routes gets the routes of its delegates merged into its own. A merged route still
//     names its delegate in the field delegate; before, a route has either a delegate or an action.
//   - A ServiceEntry with a workloadSelector, and a Kubernetes Service whose selector selects WorkloadEntries, get a
//     record of Endpoints (EndpointsKey) with the selected Workloads.
//
// All other records are those of the source, unchanged.
//
// Data structures. Each record that refers to sets is a unit: the sets of records that it reads (kind and namespace,
// with a name or labels), the resulting record, and its problems. An index finds the units by the records that they
// read. The overlay contains the results of all units, by key: a resolved snapshot is the source's with the overlay
// applied. While the overlay is empty, the resolved snapshot is the source's snapshot itself; otherwise the two share
// nearly all memory (see Resolver.snapshot).
//
// One change. For each edit the table of dependencies lists the units that it touches, by the record before and after.
// These units are resolved again. The resulting change contains the edits of the source, except for records in the
// overlay, and an edit for each record of the overlay whose content differs. A change that touches no unit costs one
// insertion into a radix tree for each edit, and nothing while the overlay is empty.
//
// Invariants, which tests hold. After every step a resolved snapshot has the same content, record by record, as one
// that was resolved from scratch; without any one row of the table it has not. The edits of a change are exactly the
// differences between its two snapshots. The result of a unit depends on the source's newest snapshot alone, so all
// replicas have the same results. The exception is a panic, after which a unit keeps its last result.
//
// Owns: nothing that others change; a Resolver belongs to one goroutine.  Reads: store/mirror.  Never: clocks, sockets,
// Envoy types.
//
// Resolved snapshots are not stored. Each replica resolves the records by itself, and all replicas have the same
// result. A delegated route keeps the name of its delegate for explain. The Endpoints of a selector (EndpointsKey) are
// the ready Pods and WorkloadEntries, at their first address. A Pod behind a Service is stored twice: as a Workload
// and in its EndpointSlice. A Pod without an address is not stored.
package resolve
