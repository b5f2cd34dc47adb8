// Package fanout schedules the sends of an xDS server: it decides which stream to a proxy may send next. Urgent changes
// precede others, namespaces alternate, and the numbers of streams and bytes in progress are bounded.
//
// # Data structures
//
// Queue is a pure state machine. It contains each stream at most once in each lane, however often the stream is marked.
// A response is computed in the stream's turn, so responses never queue up. In order of urgency, the lanes are those of
// endpoints, of answers to subscriptions, and of configuration (lane.go). In a lane the namespaces alternate, and
// gateways precede other proxies. A turn is the permission to send once, and a Grant gives a turn to a stream. The sent
// bytes count against the budget until they are acknowledged (charge.go). rollout (rollout.go) delivers a plan of
// configuration to a few streams first. concurrencyWindow (window.go) bounds the number of streams to which
// configuration is written at a time while endpoints change. Loop runs a Queue with a clock and goroutines, and Stream
// is the handle of one stream.
//
// # One change
//
// When the planner changes views (the configuration that proxies share), their streams are marked (Stream.Mark). The
// loop processes all marks together, and grants turns within the budget. A worker calls the stream's function, which
// sends the differences and returns the number of bytes. The stream reports the acknowledged bytes (Acked). The ends of
// turns and ACKs free budget for other streams.
//
// # The concurrency window
//
// The window is a control loop on the load of this process. Without the window, a namespace whose routes are edited all
// the time delays the endpoints of all other namespaces. Every step of an endpoint from the store to the socket then
// waits for a processor behind goroutines that write configuration. The scenario `neighbour` of the load harness
// measures the p99 of the delay of another namespace's endpoint. `make experiment LOOP=window` runs the scenario with
// and without the window (NAVARCH_EXPERIMENT_OFF=window), in turns, and prints the medians of both. The window remains
// in the code as long as it improves the p99 by 10 %.
//
// # The rollout of configuration
//
// Plans of configuration are numbered, and each set names the plan that changed it last (manifest.Set.Plan). A plan is
// sent first to 8 streams, or to 1/128 of all streams if that is more. Each stream that acknowledges the whole plan
// permits turns of two more (rollout.go; push/serve/rollout.go reports the results). The first refusal of each identity
// reduces the number of concurrent streams to its initial value, and counts as one of these streams for a second. So a
// plan that many refuse stops. push/quarantine then withholds the refused version, and the rest of the plan continues.
//
// Endpoints, Secrets and answers to subscriptions do not wait for a rollout. A joining proxy does not wait for one
// either, until the proxy is up to date for the first time or five seconds have passed. If plans that concern all
// proxies follow each other faster than proxies acknowledge, a proxy may be about 128 plans behind.
//
// # Endpoints before configuration
//
// A stream that waits in the lane of configuration may have a turn for urgent changes (delta.State.Urgent), and keeps
// its place. Urgent changes are answers to subscriptions, and endpoints that were planned on the fast path. While
// endpoints change, configuration is written to only as many streams at a time as keep the run queue short (window.go).
// The minimum is one stream at a time and 64 MiB/s. The endpoints of a namespace that changes more than 50 times a
// second are planned and sent as configuration (push/plan/noisy.go). Endpoints of a host with 2,000 endpoints or more
// are sent in the same way, and planned at most once a second (push/plan/intake.go).
//
// # Invariants, held by tests
//
// A marked stream gets a turn, whatever other streams do. A lane that may send, and that was passed over four times, is
// next. The bytes of a stream that has not acknowledged them for a second no longer count against the budget. A plan
// that many refuse stops after a few streams. Marking never blocks.
//
// Owns: the queue of streams, the budgets, the sends in progress. Reads: the run queue of the Go scheduler. Never: a
// socket, a manifest.
package fanout
