// Package place turns the fleet into a ring, and the ring into a replica's actions. It decides which proxies a replica
// serves, when it admits streams, and which streams it sends away.
//
// # Control loops
//
// Three loops follow the load of the machine. Each was made for one fault, can be switched off for measurements
// (NAVARCH_EXPERIMENT_OFF of navarchd), and stays only while it improves that fault's figure by a tenth. `make
// experiment LOOP=moves` runs the load harness's scenario with and without a loop in turns, and prints the medians of
// both (loadtest/RESULTS.md, Control loops).
//
//   - joins (Admission, Pace; pace.go): thousands of proxies come at once after another replica was killed or etcd
//     came back (faults 12 and 13 of cmd/internal/e2e/PROMISES.md). Planning and sending for all proxies together
//     fills the container's memory, and delays all until the last is served. Figure: the time until the admitted
//     proxies have three more changes (`TestFaultMoreJoinThanMemoryTakes` of cmd/internal/e2e). With enough memory
//     (scenarios `storm` and `memory`) the loop makes no difference.
//   - moves (Moves; moves.go): a replica joins or leaves, so that a quarter of a fleet changes owner at once. New
//     connections for all of them at once delay everyone else's pushes. Figure: the p99 of edit to ACK while scaling,
//     relative to the steady state (scenario `scale`).
//   - drain (Drain; drain.go): stock agents' proxies do not follow the ring, so a restarted replica stays empty while
//     the other replicas keep its streams. Without the loop the fleet never becomes even (`TestFleetEvensOut` of
//     cmd/internal/e2e).
//
// Two further control loops are elsewhere: the window of push/fanout and the garbage collector (cmd/navarchd/memory).
//
// Owns: ring/ (the leader, under its fence); the pace of joins and of draining.
// Reads: members/, ring/, leader/ through store/kv, shard/member.
// Never: closes a stream itself; affects correctness: any replica can serve any proxy.
package place
