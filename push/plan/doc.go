// Package plan decides the resources of every view, and keeps the decisions up to date as snapshots change. A view has
// all facts that decide the configuration of a proxy, so proxies with equal views have equal configuration. The package
// contains the Planner, the table of effects, and the Loop. Fresh plans a snapshot from scratch, for comparison in
// tests.
//
// # Data structures
//
// A view has layers that proxies share. Each layer is planned by packages below this one. The outbound side is called a
// scope. plan/host plans its hosts, and a front (plan/front) its listeners and route configurations. A variant has the
// resources of a scope that differ for proxies with certain inputs (labels, locality, network). plan/inbound plans the
// inbound side, which is called the workload, and plan/secret the Secrets. An overlay has the resources that depend on
// the addresses or the identity of single proxies. All planners of layers read one plan/input.Input, and fill a
// plan/layer.Layer. A Spec is the input of the builder of one resource. The set of a view is the list of its resources.
//
// # One change
//
// Loop receives a change from the mirror, resolves it (push/resolve), and passes edits that only touch endpoint
// assignments to PlanEndpoints (the fast path, fast_path.go). The other edits wait a moment for further edits
// (debounce) and go through Begin, Step and End. The table of effects (affects.go) maps edits to affected units, such
// as hosts, views and workloads. Scopes plan their affected units again (scope.run). A large change is planned in
// pieces and on shadows, which are unpublished copies of scopes (stepwise.go, replan.go). The pool (push/pool) returns
// the same resource for an equal Spec, and equal resources leave a manifest (push/manifest) unchanged. Only views with
// a different manifest are published.
//
// # One join
//
// A proxy whose view is planned joins at once. For other proxies the missing layers are planned in pieces, while the
// loop serves all other proxies (stepwise.go, joining.go). joins.go has the queues of the joining proxies, by
// namespace.
//
// # Reasons
//
// One goroutine plans for all scopes. Planning one edit takes some tenths of a millisecond, so more goroutines would
// not help.
//
// Long work is planned in pieces, cluster by cluster and host by host, on shadows of the scopes (stepwise.go). Such
// work is a large change of configuration (replan.go), or a missing layer of a joining proxy's view (joining.go). The
// work pauses after some 5 ms. The fast path may run in the pause, on the scopes and on the shadows. At the end of a
// change its shadows replace the scopes all at once, and joining proxies wait for that end. During a join the loop
// continues to apply changes and to plan joins of other proxies. The joins of different namespaces alternate. The
// metric navarch_plan_piece_seconds has the durations of the pieces.
//
// Scopes that only differ in the namespace are cloned from one another (clone.go). The clone treats two groups of
// records as edited: the records of both namespaces, and the records that name one of them. The table of effects then
// lists the units to plan again. A clone shares everything else with its template. Hosts and virtual hosts are replaced
// and never changed. Each further clone occupies some 75 KB, however many services there are.
//
// By default, a view is retained for ten seconds after its last proxy has left (Config.Linger). The private keys that
// the view uses are retained too.
//
// If a policy cannot be enforced, the traffic is refused. A policy with an unknown condition key refuses all traffic of
// the workloads that it selects. A CUSTOM policy whose provider cannot be called refuses the requests that it matches.
// A RequestAuthentication rule without keys refuses tokens. If a proxy has no certificate of the mesh, STRICT closes
// its ports.
//
// # Panics
//
// A planner that panicked is replaced by a new one, which plans all views from scratch at the newest snapshot
// (rescue.go). If a view panics again, blame.go applies the edits in the order of keys, and finds by bisection the
// first edit after which the view panics. That edit is excluded. The loop then plans from its own copies of the
// mirror's snapshots, without the excluded edits. A join that panics leaves the planner unchanged.
//
// # Forks
//
// Planner.Fork returns an independent planner with the same plan, for another goroutine (fork.go). Previews of changes
// are planned on forks (push/preview). A fork shares the hosts, entries, route configurations and manifests of the
// planner, as scopes share them among each other. A shared value is copied before it is changed. The only shared values
// that change in place are the versions of a host in variations (host.versions), which have a mutex. Loop.Base copies
// the parts that change in place between two plans, in one piece of some 2 ms for 20,000 proxies in 50 scopes. The rest
// of the copying runs in the caller's goroutine.
//
// # Memory of a replica
//
// The store may contain records that an older version, or a leader with other limits, has accepted. So the loop weighs
// records by store/weight before they are planned (room.go, intake.go). While all records together would exceed
// Config.Room, it leaves out heavy records. Only records that grow are left out, the largest record of the heaviest
// namespace first. At a start all records count as growing. Policies and records of the root namespace are never left
// out.
//
// # Routers
//
// Proxies of type router have the listeners and route configurations of the Gateways that select them
// (push/plan/front/gateway). They have clusters for the hosts that are exported to their namespace, and the resources
// that EnvoyFilters add in the context GATEWAY. They may subscribe to the Secrets that their Gateways refer to.
//
// # Invariants
//
// Tests check these invariants. The maintained plan equals the plan that Fresh makes of the same snapshot, byte for
// byte. An edit of a kind without a row in the table of effects plans everything again, so the result is still correct.
// Published values never change. After a panic, proxies keep their resources (rescue.go).
//
// Owns: scopes, variants, workloads, overlays and their manifests, in the goroutine of Loop. Reads: snapshots, views.
// Never: builds Envoy's protobufs; uses a clock or a socket outside Loop.
package plan
