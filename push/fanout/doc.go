// Package fanout schedules the sends of an xDS server: it decides which stream to a proxy may send next. Urgent changes
// precede others, namespaces alternate, and the numbers of streams and bytes in progress are bounded.
//
// # Data structures
//
// Queue is a pure state machine. It has one lane for endpoints, one for answers to subscriptions, and one for
// configuration, the most urgent lane first (lane.go). Each stream waits at most once in each lane, however often the
// stream is marked. In a lane, gateways precede other proxies, and namespaces alternate. A Grant gives a stream a turn,
// which is the permission to send once. A response is computed during the turn, so responses never queue up. The sent
// bytes count against the budget until they are acknowledged (charge.go). rollout (rollout.go) delivers a plan of
// configuration to a few streams first. concurrencyWindow (window.go) bounds the number of streams to which
// configuration is written at a time while endpoints change. Loop runs a Queue with a clock and goroutines, and Stream
// is the handle of one stream.
//
// # One change
//
// A view is the configuration that several proxies share. When the planner changes a view, the streams of its proxies
// are marked (Stream.Mark). The loop processes all marks together, and grants turns within the budget. A worker calls
// the stream's function, which sends the differences and returns the number of bytes. The stream reports the
// acknowledged bytes (Acked). Each end of a turn and each ACK frees budget for other streams.
//
// # The concurrency window
//
// The window is a control loop on the load of this process. Without the window, a namespace whose routes are edited all
// the time delays the endpoints of all other namespaces. Each step of an endpoint's way from the store to the socket
// then waits for a processor, behind goroutines that write configuration. The scenario `neighbour` of the load harness
// measures the p99 of the delay of another namespace's endpoint. `make experiment LOOP=window` runs the scenario with
// and without the window (NAVARCH_EXPERIMENT_OFF=window), alternately, and prints the medians of both. The window
// remains in the code as long as it improves the p99 by 10 %.
//
// # The rollout of configuration
//
// Plans of configuration are numbered. Each set of resources (manifest.Set) has the number of the plan that changed it
// last. A plan is sent first to 8 streams, or to 1/128 of all streams if that is more. After each stream that
// acknowledges the whole plan, two more streams may have a turn (rollout.go). push/serve/rollout.go reports the
// results. The first refusal by each identity reduces the number of concurrent streams to its initial value. Such a
// refusal also counts as one of these streams for a second. So a plan that many identities refuse stops.
// push/quarantine then withholds the refused version, and the rest of the plan continues.
//
// Endpoints, Secrets and answers to subscriptions do not wait for a rollout. A new proxy does not wait for a rollout
// until the proxy is up to date for the first time or five seconds have passed. If plans that concern all proxies
// follow each other faster than proxies acknowledge, a proxy may be about 128 plans behind.
//
// # Endpoints before configuration
//
// A stream that waits in the lane of configuration may get a turn for urgent changes (delta.State.Urgent). The stream
// keeps its position in that lane. Urgent changes are answers to subscriptions, and endpoints that were planned on the
// fast path. While endpoints change, the concurrency window bounds the number of streams that get configuration, to
// keep the run queue short (window.go). Its lowest bound is one stream at a time and 64 MiB/s. If the endpoints of a
// namespace change more than 50 times a second, they are planned and sent like configuration (push/plan/noisy.go).
// Endpoints of a host with 2,000 endpoints or more are sent in the same way, and planned at most once a second
// (push/plan/intake.go).
//
// # Invariants, held by tests
//
// A marked stream gets a turn, whatever other streams do. A lane that may send, and that was passed over four times, is
// next. The bytes of a stream that has not acknowledged them for a second no longer count against the budget. A plan
// that many identities refuse stops after a few streams. Marking never blocks.
//
// Owns: the queue of streams, the budgets, the sends in progress. Reads: the run queue of the Go scheduler. Never:
// opens a socket; reads a manifest.
package fanout
