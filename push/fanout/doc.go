// Package fanout decides which stream is sent to next. The newest state wins, urgent changes go first, namespaces
// alternate, and the streams and bytes in progress are bounded.
//
// # Data structures
//
// Queue (pure) has each stream at most once in each lane, however often it is marked. A response is computed in the
// stream's turn, so responses never queue up. The lanes are, in order of urgency: endpoints, answers to subscriptions,
// configuration (lane.go). In a lane namespaces form a ring and alternate; gateways precede sidecars. A grant is a turn
// to send. The sent bytes count against the budget until they are acknowledged (charge.go). rollout (rollout.go) sends
// a plan of configuration to a few streams first. concurrencyWindow (window.go) bounds the number of streams to which
// configuration is written at a time while endpoints change. Loop is a Queue with a clock and a goroutine, and Stream
// is one stream's handle.
//
// # One change
//
// The planner marks the streams whose views differ (Stream.Mark). The loop processes all marks together, and grants
// turns within the budget. A worker sends the differences (Sent counts the bytes), and ACKs call Acked. Both make room
// for others.
//
// # The concurrency window
//
// The window is a control loop on the load of this machine. It exists for one fault: a namespace whose routes are
// edited without end delays the endpoints of all others, because every step of an endpoint's way waits for a processor
// behind the streams to which configuration is written. It is measured by the scenario `neighbour` of the load harness:
// the p99 of the delay of another namespace's endpoint. navarchd runs without the window if NAVARCH_EXPERIMENT_OFF has
// `window`. `make experiment LOOP=window` plays the scenario with and without it, in turns, and prints the medians of
// both. The window stays as long as it improves that figure by a tenth.
//
// # The rollout of configuration
//
// Plans of configuration are numbered, and each set names the plan that last changed it (manifest.Set.Plan). A plan
// goes to 8 streams first, or to a 128th of its streams. Each stream that acknowledges the whole plan lets two more
// have their turn (rollout.go; push/serve has its half). The first refusal of each identity resets the number of
// concurrent streams to the first number, and keeps its slot for a second. So a plan that many refuse stops.
// push/quarantine then withholds the refused version, and the remaining plan continues.
//
// Endpoints, Secrets and answers to subscriptions do not wait for a rollout. Nor does a joining proxy, until it is up
// to date or five seconds have passed. If acknowledgements take longer than the time between two wide plans, a proxy
// may be about 128 plans behind.
//
// # Endpoints before configuration
//
// A stream that waits in the lane of configuration has a turn for urgent changes and keeps its place
// (delta.State.Urgent: assignments of hosts that the fast path planned while their clusters stayed unchanged, and
// answers to subscriptions). While endpoints change, configuration goes to only as many streams at a time as keep the
// run queue short (window.go), at least to one after the other, 64 MiB a second: an endpoint waits behind those writers
// on its way from the store to the socket. The endpoints of a namespace that changes more than 50 times a second are
// planned and sent as configuration (push/plan/noisy.go). So are those of a host of 2,000 endpoints or more, which is
// planned at most once a second, the hosts in turns by namespace (push/plan/intake.go).
//
// # Invariants, held by tests
//
// A marked stream gets a turn, whatever others do. A lane that was passed over four times is next, a stream that has
// not acknowledged for a second no longer counts against the budget, and a plan that many refuse stops after a few
// streams. Marking never blocks.
//
// Owns: the queue of streams, the budgets, the sends in progress. Reads: the run queue of the Go scheduler. Never: a
// socket, a manifest.
package fanout
