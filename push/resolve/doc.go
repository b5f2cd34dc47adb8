// Package resolve turns references by set into direct ones: it is between the mirror's snapshot and the plan, which finds in a
// resolved snapshot what it needs under the record that it looks at.
//
//   - A VirtualService that delegates routes to others has their routes merged into its own. The routes that came of a delegate still
//     name it in their field delegate; before, a route has either a delegate or an action.
//   - A ServiceEntry with a workloadSelector, and a Kubernetes Service whose selector picks WorkloadEntries, get a record of Endpoints
//     (EndpointsKey) of the Workloads that they select.
//
// Everything else is the very record of the source.
//
// Data structures. Each record that refers by set is a unit: the sets of records that it reads (kind and namespace, with a name or
// labels), what became of it, and what is wrong with it. An index finds the units by the records that they read. The overlay is what
// all units became, by key: a resolved snapshot is the source's with the overlay on it. While the overlay is empty it is the source's
// snapshot itself; else it shares nearly all structure with it (see Resolver.snapshot).
//
// The life of one change: the table of dependencies says for each edit which units it touches, by the record before and after.
// Those are resolved again. The change that comes out has the edits that went in, but for records under an overlay, and an edit for
// each record of the overlay whose content differs. A change that touches no unit costs one insertion into a radix tree for each
// edit, and nothing at all while nothing is resolved.
//
// Invariants, held by tests: a resolved snapshot has, record by record, the content of one that was resolved from scratch, after every
// step, and without any one row of the table it has not. The edits of a change are exactly what differs between its two snapshots.
// What a unit becomes depends on the source's newest snapshot alone, and on nothing that was before it, so that all replicas come to
// the same; but for a panic, which leaves what that unit became last.
//
// Owns: nothing that others change; a Resolver belongs to one goroutine.  Reads: store/mirror.  Never: clocks, sockets, Envoy types.
//
// Resolved snapshots are not stored. Each replica resolves the records by itself, and all replicas come to the same
// result. A delegated route keeps the name of its delegate for explain. The Endpoints of a selector (EndpointsKey) are
// the ready Pods and WorkloadEntries, at their first address. A Pod behind a Service is stored twice: as a Workload
// and in its EndpointSlice. A Pod without an address is not stored.
package resolve
