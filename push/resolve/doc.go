// Package resolve makes resolved snapshots, in which records no longer refer to other records by name or labels. The
// source is the mirror, whose snapshots contain the records as they are stored. The plan reads resolved snapshots, not
// those of the source.
//
//   - The routes of delegates are merged into a VirtualService that delegates to them. A merged route still names its
//     delegate in the field delegate, for explanations. In the source, a route has either a delegate or an action.
//   - A ServiceEntry with a workloadSelector, and a Kubernetes Service whose selector selects WorkloadEntries, get a
//     record of Endpoints (EndpointsKey). This record has the endpoints of the selected ready Workloads. It is missing
//     if no such Workload is selected.
//
// All other records are unchanged.
//
// Data structures. A unit is the resolution of one record that refers to others. It has the sets of records that it
// reads (kind and namespace, with a name or labels), the resulting record, and problems. An index finds the units that
// read a record. The overlay contains the results of all units, by key. A resolved snapshot is the source's snapshot
// with the records of the overlay. While the overlay is empty, the resolved snapshot is the source's snapshot itself.
// If it is not empty, both snapshots share nearly all memory (see Resolver.snapshot).
//
// One change. For each edit, the table of dependencies determines the units that the edit touches. These units are
// resolved again. Units that select the same workloads share the selection. The resulting change has the edits of the
// source, except for records in the overlay, and an edit for each record of the overlay whose content differs. A change
// that touches no unit costs about two insertions into a radix tree for each edit, and nothing while the overlay is
// empty.
//
// Invariants, which tests check. After every step a resolved snapshot has the same content, record by record, as one
// that was resolved from scratch. Each row of the table is necessary for this property. The edits of a change are
// exactly the differences between its two snapshots. The result of a unit depends only on the source's newest snapshot,
// so all replicas compute the same results. After a panic, however, a unit keeps its last result.
//
// Owns: the units, the index and the overlay of a Resolver. Reads: store/mirror. Never: uses clocks, sockets or Envoy's
// types.
package resolve
