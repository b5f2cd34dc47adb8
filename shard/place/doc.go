// Package place turns the fleet into a ring, and the ring into a replica's actions. It decides which replica owns a
// proxy, when a replica admits streams, and how many streams it sends away.
//
// # Control loops
//
// Three loops follow the load of the machine. Each loop was made for one fault, and stays only while it improves the
// figure of that fault by a tenth. Each can be switched off for measurements (NAVARCH_EXPERIMENT_OFF of navarchd). The
// command make experiment LOOP=moves runs a scenario of the load harness with and without the loop, in turns. It prints
// the medians of both (loadtest/RESULTS.md, Control loops). For the loops joins and drain it runs a test instead.
//
//   - joins (Admission, Pace): thousands of proxies come at once after another replica was killed or etcd came back.
//     Planning and sending for all proxies together fills the container's memory, and delays every proxy. The figure
//     is the time until the admitted proxies have three more changes (TestFaultMoreJoinThanMemoryTakes of
//     cmd/internal/e2e). With enough memory (scenarios storm and memory) the loop makes no difference.
//   - moves (Moves): a replica joins or leaves, and a quarter of the fleet's proxies change owner at once. Their new
//     connections would delay the pushes to all other proxies. The figure is the 99th percentile of the time from an
//     edit to its ACK while scaling, relative to the steady state (scenario scale).
//   - drain (Drain): the proxies of stock agents do not follow the ring. So a restarted replica would stay empty while
//     the other replicas keep its streams. Without the loop the fleet never becomes even (TestFleetEvensOut of
//     cmd/internal/e2e).
//
// Two further control loops are in other packages: the window of push/fanout, and the garbage collector's
// (cmd/navarchd/memory).
//
// Owns: ring/ (the leader, under its fence); the pace of joins, moves and draining.
// Reads: members/, ring/, leader/ through store/kv and shard/member.
// Never: closes a stream itself; affects correctness, because any replica can serve any proxy.
package place
