// Package plan decides what every view should have, and keeps it decided as snapshots change: Planner, the table of effects, the loop,
// and the oracle that compares what is kept with plans from scratch.
//
// # Data structures
//
// A view has layers that proxies share. Each is a package below this one: the outbound side is a scope, whose hosts are plan/host's and
// whose listeners and route configurations are a front's (plan/front); the inbound side is plan/inbound's; Secrets are plan/secret's.
// All read one plan/input.Input, and fill a plan/layer.Layer.
//
// # One change
//
// Loop gets it from the mirror, has it resolved (push/resolve), and passes edits that touch assignments alone to PlanEndpoints (the fast
// path, fast_path.go); the rest waits a moment for more (debounce) and goes through Begin, Step and End. The table of effects (affects.go)
// turns edits into dirt: hosts, views, workloads. Scopes plan their dirt again (scope.run), in pieces and on shadows where it is
// much (making.go, replan.go). A Spec that is equal is answered by the pool, resources that are equal leave their manifest as it is,
// and only views with another manifest move.
//
// # One join
//
// A proxy whose view is planned has it at once. Else what the view lacks is made in pieces, while the loop serves everybody else
// (making.go, joining.go; joins.go has the proxies that wait for it, by namespace).
//
// # Why it is so
//
// One goroutine plans for all scopes. Planning one edit takes tenths of a millisecond, so several loops by hash of
// scope would gain nothing.
//
// Long work is planned cluster by cluster and host by host on shadows of the scopes (making.go): a change of much
// configuration (replan.go), and the scope, the variant or the inbound side of a proxy that joins (joining.go).
// Every 5 ms the endpoints that changed have their turn, on the scopes and on the shadows. At the end of a change
// its shadows replace the scopes all at once, and proxies that join wait for that end. During a join everything
// else goes on: changes, and joins of others, with the namespaces in turn. navarch_plan_piece_seconds has the
// lengths of the pieces.
//
// Scopes that differ in the namespace alone are cloned from one another (clone.go). In the clone, all records of one
// of the two namespaces, and all that name one, count as edited, so the table of effects says what to plan again. A
// clone shares all else with its template. Hosts and virtual hosts are replaced and never changed. A further clone
// takes some 75 KB, whatever the number of services.
//
// A view is kept for ten seconds after its last proxy has left, with the private keys of a gateway.
//
// What a policy cannot enforce is refused. A policy with a condition by an unknown key refuses all that it selects. A
// CUSTOM policy without a provider that can be asked refuses what it matches. A RequestAuthentication rule without
// keys refuses tokens. STRICT closes the ports of proxies without a certificate of the mesh.
//
// # Panics
//
// A planner that panicked is replaced by one that plans all views from scratch at the newest snapshot (rescue.go). If
// a view panics again, blame.go looks for the first edit, in the order of keys, with which the view cannot be planned
// and before which it can. That edit is set aside: the loop then plans from snapshots of its own, which are the
// mirror's without the edits that are set aside. A join that panics leaves the planner as it was.
//
// # Room of a replica
//
// The store may hold what an older version, or a leader with other limits, has accepted. So the loop weighs records by
// store/weight before they are planned (room.go, intake.go). While all records together would take more than a third
// of GOMEMLIMIT, it leaves out single heavy records: among those that grow, the largest of the heaviest namespace
// first. At a start all records grow. The choice depends on the snapshot and on what is planned, not on whether the
// process was killed before.
//
// # Routers
//
// Proxies of type router have clusters and endpoints, and the listeners and clusters that EnvoyFilters add in the
// context GATEWAY. A Gateway has no listeners yet. It only decides which Secrets its proxies may subscribe to.
//
// # Invariants, held by tests
//
// What is kept is what Fresh plans of the same snapshot, byte for byte; a row that is missing in the table of effects costs
// work and never correctness; nothing that is published changes; a panic leaves what proxies have as it was (rescue.go).
//
// Owns: scopes, variants, workloads, overlays and their manifests (Planner: one goroutine; Loop is that goroutine).
// Reads: snapshots, views.  Never: protobuf of Envoy; a clock or a socket outside Loop.
package plan
