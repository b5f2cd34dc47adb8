// Package place turns the fleet into a ring, and the ring into what a replica does: whom it serves, whom it lets in and
// when, whom it sends away.
//
// # Control loops
//
// Three loops follow the load of the machine. Each was made for one fault, can be left off (NAVARCH_EXPERIMENT_OFF of navarchd, for
// measurements), and stays only as long as it gains a tenth of that fault's figure: `make experiment LOOP=moves` plays the scenario of the
// load harness with and without it, in turns, and prints the medians of both (loadtest/RESULTS.md, Control loops).
//
//   - joins (Admission, Pace; pace.go): thousands of proxies come at once, because another replica was killed or an etcd came back
//     (faults 12 and 13 of cmd/internal/e2e/PROMISES.md). Planning and sending for all of them together fills the memory of the container, and
//     nobody is served before all are. Test `TestFaultMoreJoinThanMemoryTakes` of cmd/internal/e2e: how long until those who are in have three
//     more changes. Where there is memory enough (scenarios `storm` and `memory`) it makes no difference.
//   - moves (Moves; moves.go): a replica joins or leaves, and a quarter of a fleet has another owner in one moment. New connections for
//     all of them at once delay the pushes of everybody else. Scenario `scale`: the p99 of edit to ACK while scaling, of the steady state's.
//   - drain (Drain; drain.go): proxies of stock agents do not follow the ring, so a replica that was restarted stays empty, and the others
//     keep what it had. Test `TestFleetEvensOut` of cmd/internal/e2e: without the loop the fleet is never even.
//
// The other two are push/fanout's window and the garbage collector (cmd/navarchd/memory).
//
// Owns: ring/ (the leader, under its fence); the pace of joins and of draining.  Reads: members/, ring/, leader/ through
// store/kv, shard/member.  Never: closes a stream itself; makes a wrong answer: any replica can serve any proxy.
package place
