// Package place distributes the proxies over the replicas of the control plane. The leader writes the ring, which
// assigns an owner (one replica) to each proxy. Each replica reads the ring. It decides when to admit new streams, and
// how many streams to send away.
//
// # Control loops
//
// Three control loops adapt to the measured load. Each loop corrects one fault, whose effect is measured by one figure.
// A loop stays in the program only while it improves its figure by a tenth. In a build with the tag experiment,
// NAVARCH_EXPERIMENT_OFF switches a loop off. The command make experiment LOOP=moves runs a load test with and without
// the loop moves, in turns. It prints the medians of both (loadtest/RESULTS.md, Control loops). For joins and drain,
// the command runs a Go test instead.
//
//   - joins (Admission, Pace): thousands of proxies connect at once, after another replica was killed or etcd came
//     back. Serving all of them at once would fill the container's memory and delay every proxy. The figure is the time
//     until the admitted proxies have received three more changes (TestFaultMoreJoinThanMemoryTakes of
//     cmd/internal/e2e). With enough memory, the loop makes no difference (load tests storm and memory).
//   - moves (Moves): a replica joins or leaves, and a quarter of all proxies change owner at once. Their new
//     connections would delay the pushes to all other proxies. The figure is the 99th percentile of the time from an
//     edit of the configuration to its ACK. The load test scale compares this figure while the number of replicas
//     changes with the figure while the number is stable.
//   - drain (Drain): the agents of Istio do not follow the ring. So a restarted replica would stay empty, while the
//     other replicas keep its former streams. Without the loop, the replicas never have equal loads (TestFleetEvensOut
//     of cmd/internal/e2e).
//
// The packages push/fanout and cmd/navarchd/memory have one further control loop each.
//
// Owns: the folder ring/ of the store, which only the leader writes; the pace at which streams join, move and are
// closed.
// Reads: the folders members/, ring/ and leader/ of the store.
// Never: closes a stream itself; affects which configuration a proxy receives, because any replica can serve any proxy.
package place
