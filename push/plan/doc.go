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
// A proxy whose view is planned has it at once. Else the scope or the variant is made in pieces, while the loop serves everybody else
// (making.go, joining.go; joins.go has the proxies that wait for it, by namespace).
//
// # Invariants, held by tests
//
// What is kept is what Fresh plans of the same snapshot, byte for byte; a row that is missing in the table of effects costs
// work and never correctness; nothing that is published changes; a panic leaves what proxies have as it was (rescue.go).
//
// Owns: scopes, variants, workloads, overlays and their manifests (Planner: one goroutine; Loop is that goroutine).
// Reads: snapshots, views.  Never: protobuf of Envoy; a clock or a socket outside Loop.
package plan
