// Package fanout decides which stream is sent to next: the newest state wins, urgent changes go first, namespaces take turns, and streams and
// bytes that are under way are bounded.
//
// # Data structures
//
// Queue (pure) has each stream at most once in each lane, however often it is marked: what it is sent is computed when its turn comes, so
// nothing queues up. Lanes are, in order of urgency: endpoints, answers to subscriptions, configuration (lane.go). In a lane namespaces form a
// ring, and take turns; gateways go before sidecars. A grant is a turn to send; the bytes that were sent count against the budget until
// they are acknowledged (charge.go). rollout (rollout.go) lets a plan of configuration go to a few streams first.
// concurrencyWindow (window.go) bounds how many streams configuration is written to at once while endpoints change. Loop is a Queue with a
// clock and a goroutine, and Stream is one stream's handle on it.
//
// # One change
//
// The planner marks the streams whose views differ (Stream.Mark). The loop takes all marks at once, and grants turns while the budget lasts.
// A worker sends what differs (Sent counts its bytes); ACKs call Acked; both make room for others.
//
// # The concurrency window
//
// A control loop on the load of this machine. It was made for one fault: a namespace whose routes are edited without end holds up the
// endpoints of all others, because every step of an endpoint's way waits for a processor behind the streams that configuration is written
// to. Its figure is the scenario `neighbour` of the load harness: the p99 by which another namespace's endpoint is delayed. navarchd runs without
// it where NAVARCH_EXPERIMENT_OFF has `window`; `make experiment LOOP=window` plays the scenario with and without, in turns, and prints the
// medians of both. It stays as long as it gains a tenth of that.
//
// # The rollout of configuration
//
// Plans of configuration are numbered, and each set names the plan that changed it last (manifest.Set.Plan). A plan
// goes to 8 streams first, or to a 128th of its streams. Each stream that acknowledges all of the plan lets two more
// have their turn (rollout.go; push/serve has its half). The first refusal of each identity sets the number of streams
// that may try the plan at once back to the first number, and the refused place stays taken for a second. So a plan
// that many refuse stops. push/quarantine then withholds the refused version, and the rest of the plan goes on.
//
// Endpoints, Secrets and answers to subscriptions do not wait for a rollout, nor does a proxy that joins, until it is
// up to date or five seconds have passed. Where acknowledgements take longer than the time between two wide plans, a
// proxy may be some 128 plans behind.
//
// # Endpoints before configuration
//
// A stream that waits in the lane of configuration has a turn for urgent changes and keeps its place
// (delta.State.Urgent: assignments of hosts that the fast path planned while their clusters stayed as they were, and
// answers to subscriptions). While endpoints change, configuration goes to as many streams at once as keep the run
// queue short (window.go), at least to one after the other, 64 MiB a second: an endpoint waits behind those writers on
// its way from the store to the socket. The endpoints of a namespace that changes more than 50 times a second are
// planned and sent as configuration (push/plan/noisy.go). So are those of a host of 2,000 endpoints or more, which is
// planned at most once a second, the hosts in turns by namespace (push/plan/intake.go).
//
// # Invariants, held by tests
//
// A stream that is marked gets a turn, whatever others do: a lane that is passed over four times is next, a stream that has not acknowledged
// for a second no longer counts against the budget, and a plan that many refuse stops after a few streams. Marking never blocks.
//
// Owns: the queue of streams, the budgets, what is in flight.  Reads: the run queue of the Go scheduler.  Never: a socket, a manifest.
package fanout
