// Package fleet makes a process one replica of a fleet. A fleet is the set of control-plane replicas of one mesh. Each
// proxy belongs to a shard, and a ring assigns each shard to one replica. That replica is the owner of the shard's
// proxies. The package limits the rate of new streams, notifies agents of the owners of their proxies, balances the
// number of streams, and hands the streams over when the process is stopped.
//
// Owns: this replica's member record (shard/member); its placement, which maps proxies to owners (shard/place); for
// each agent, the placement of which the agent was notified.
// Reads: the ring, the streams of push/serve.
// Never: decides which replica owns a shard (place.Lead), or when to move or close streams (place.Moves, place.Drain,
// place.Leaving).
//
// # One of a fleet
//
// A new stream waits until place.Admission admits it. An admitted stream counts in member.Streams until it ends. If the
// replica has too many streams, place.Drain decides when to close one. After SIGTERM, the goroutines of Fleet.Tasks
// continue while Fleet.Depart runs. Their context ends afterwards.
//
// An agent receives the owner of its proxy as a resource of the type navarch.io/owner. The owner comes from the newest
// place.Placement of which the agent's stream was notified. If a newer placement leaves the proxy at this replica, the
// agent is notified at once. If the proxy must move to another replica, place.Moves sets the pace of notifications
// (notify.go):
//
//   - While goroutines do not wait for a processor, the pace rises. The limit is 100 moves per second to one replica,
//     from all other replicas together.
//   - While goroutines wait for a processor, the pace falls. Each replica still notifies 10 agents per second, or a
//     hundredth of its streams per second if that is more.
//   - A replica that is being stopped notifies all its agents in the first half of the time in which it closes streams.
//
// During an upgrade, replicas have different versions (obs.Version). A replica then sends agents only to replicas of
// its own version, unless it is being stopped. If the ring moves a shard to a replica of the other version, the shard's
// proxies stay. An agent whose replica crashes may reconnect to any other replica.
//
// Before a new replica is ready, it plans (computes) the configuration of the namespaces that it will own (prewarm.go).
// It plans for at most 20 seconds. For this purpose it makes prewarmed proxies, which exist only in this process: one
// for each namespace, and one for each Sidecar with a workload selector. They have the capabilities of this version's
// proxy image. Configuration for other capabilities, clusters or networks, or for workload selectors of EnvoyFilters,
// is not planned in advance. The prewarmed proxies exist until a minute after the ramp, in which the share of a new
// replica grows.
//
// A single process with an embedded etcd runs the same goroutines, and owns all shards.
package fleet
