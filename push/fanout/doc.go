// Package fanout schedules the sends of an xDS server. It decides on which stream to a proxy the server may send next.
// Urgent changes precede others, namespaces alternate, and the numbers of streams and bytes in progress are bounded.
//
// # Data structures
//
// Queue is a pure state machine. A lane is a list of streams that wait to send changes of one urgency. There is a lane
// for endpoints, one for answers to subscriptions, and one for configuration, the most urgent lane first (lane.go). A
// stream is marked in a lane when there may be something to send. It waits at most once in each lane, however often it
// is marked. In a lane, gateways precede other proxies, and namespaces alternate. A Grant gives a stream a turn, which
// is the permission to send once. A response is computed during the turn, so responses never queue up. The sent bytes
// count against the budget (type Budget) until they are acknowledged (charge.go). A plan is the configuration of all
// proxies for one revision of the store. The type rollout (rollout.go) delivers each plan to a few streams first. The
// type concurrencyWindow (window.go) bounds the number of streams to which configuration is written at a time while
// endpoints change. Loop runs a Queue with a clock and goroutines. Stream represents one stream of a Loop.
//
// # One change
//
// A view is the configuration that several proxies share. When the planner changes a view, the streams of its proxies
// are marked (Stream.Mark). The loop processes the marks of all these streams together, and grants turns within the
// budget. In each turn, a worker (a goroutine of the loop) calls the stream's function. The function sends the
// differences and returns the number of bytes. The stream reports the acknowledged bytes (Acked). Each end of a turn
// and each ACK frees budget for other streams.
//
// # The concurrency window
//
// The window adapts to the load of this process. Without the window, a namespace whose routes are edited all the time
// delays the endpoints of all other namespaces. Each step of an endpoint's way from the store to the socket would wait
// for a processor, behind goroutines that write configuration. The scenario `neighbour` of the load harness measures
// the 99th percentile of such delays. `make experiment LOOP=window` runs the scenario with and without the window,
// alternately, in a build with the tag experiment, and prints the median of each variant. The window remains in the
// code as long as it improves the percentile by at least 10 %.
//
// # The rollout of configuration
//
// Plans of configuration are numbered. Each set of resources (manifest.Set) has the number of the plan that changed it
// last. A plan is sent first to 8 streams, or to 1/128 of all streams if that is more. After each stream that
// acknowledges the whole plan, two more streams may have a turn (rollout.go). push/serve/rollout.go reports to the loop
// whether the clients accept the plan. The first refusal by each identity reduces the number of concurrent streams to
// its initial value. For a second, such a refusal also counts as one of the concurrent streams. So a plan that many
// identities refuse stops. When push/quarantine has withheld the refused version, the rest of the plan continues.
//
// Endpoints, Secrets and answers to subscriptions do not wait for a rollout. A new proxy waits for rollouts only after
// it was up to date once, or after five seconds. If plans that concern all proxies follow each other faster than
// proxies acknowledge, a proxy may be about 128 plans behind.
//
// # Endpoints before configuration
//
// A stream that waits in the lane of configuration may get a turn for urgent changes (delta.State.Urgent). The stream
// keeps its position in the lane of configuration. Urgent changes are answers to subscriptions, and endpoints that were
// planned on their own (push/plan/fast_path.go). While endpoints change, the concurrency window bounds the number of
// streams that get configuration, to keep the run queue of the Go scheduler short (window.go). The lowest bound is one
// stream at a time and 64 MiB/s. If the endpoints of a namespace change more than 50 times a second, they are planned
// and sent like configuration (push/plan/noisy.go). Endpoints of a host with 2,000 endpoints or more are sent in the
// same way, and planned at most once a second (push/plan/intake.go).
//
// # Invariants, held by tests
//
// A marked stream gets a turn, whatever other streams do. A lane that was passed over four times precedes more urgent
// lanes, if it may send. Unacknowledged bytes count against the budget for a second at most. A plan that many
// identities refuse stops after a few streams. Marking never blocks.
//
// Owns: the queue of streams, the budgets, the sends in progress. Reads: the run queue of the Go scheduler. Never:
// opens a socket; reads resources.
package fanout
