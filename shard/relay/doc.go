// Package relay carries Envoy's ADS streams to the control plane. Envoy connects to a Unix socket, and each of its
// streams uses one upstream connection at a time, unchanged except for nonces.
//
// # Data structures
//
// session (pure) is one delta stream of Envoy. It has a mirror (the names and versions that Envoy has recorded, and its
// subscriptions), the live upstream connection, and during a move the next one. The loop around it (stream.go) has the
// clock and the sockets: events go in, effects come out. Subscription is a subscription of the agent's own on the same
// stream: the owner of the proxy, the trust bundle. State-of-the-world streams pass unchanged (sotw.go).
//
// # One move
//
// A replica reports on the stream that another replica owns this proxy. The session dials the owner, at the pace of
// dials, and asks only for the owner, which waits for admission while the old connection still serves Envoy. Once the
// stream is admitted and no response is in flight, the session sends what Envoy would send on a new stream, with
// Envoy's versions, and drops the old connection.
//
// If a connection ended by itself, its unanswered responses count as in doubt and are sent again. If the mirror does
// not know all that Envoy has, Envoy's stream ends too, and Envoy states everything itself. That happens with state of
// the world, resources with a TTL, a message that does not parse, and a stream without requests.
//
// # Never back
//
// Every delta response names the store revision that it was made of (system_version_info), and the header of the
// stream names the store. An agent states on its next stream the newest revision that it has seen: its minimum
// revision. While etcd answers, a replica confirms with etcd that it is up to date before it answers a new stream.
// While etcd does not answer, a replica that is behind the agent's minimum waits for that revision, 5 s at most. Then
// it turns the agent away (Unavailable, with its own revision in a trailer). The minimum also has the place of the
// state in the chain of heads (store/kv), which counts even while etcd answers, because revisions begin again where
// etcd is restored.
//
// An agent that is turned away looks for another replica, and Envoy keeps its configuration. If for a minute, and in 8
// tries in a row, the agent finds only replicas that are behind (all are cut off, and the newest is gone), it lowers
// its minimum to the newest revision that one of them named, and that replica serves it (min_revision.go). Stock
// agents state no minimum, and are served at once.
//
// An agent that moves its Envoy first asks for its owner on the new stream, and states what Envoy has only once it was
// admitted. The old replica serves until then, so the minimum that the stream began with may be out of date. The first
// request for Envoy's types is therefore confirmed once more (serve.Proxy.Confirm). If etcd does not answer then, the
// stream ends, and the agent comes back with its present minimum.
//
// # Invariants, held by tests
//
// Envoy does not notice a move, and no resource goes back to an older revision: the newest revision seen is sent as the
// minimum (min_revision.go). Only the relay's own few requests are queued: one message at a time is under way in each
// direction, and HTTP/2 flow control holds back the rest at its sender. Without an upstream, requests only change the
// mirror.
//
// Owns: the socket, the mirror of Envoy's recorded resources, the agent's subscriptions, the minimum revision, the pace
// of dials and moves.
// Reads: Config, and the heads of messages.
// Never: reads the body of a resource for Envoy.
package relay
