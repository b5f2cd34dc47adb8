// Package relay carries Envoy's ADS streams to the control plane. Envoy connects to a Unix socket of the agent. One
// upstream connection at a time carries each of Envoy's streams. Resources pass unchanged. The upstream of a delta
// stream may change while the stream continues: the relay moves the stream to the replica that owns the proxy, and
// replaces ended connections. Then it changes nonces, and requests that refer to an earlier upstream.
//
// # Data structures
//
// A session is one delta stream of Envoy. Its mirror has Envoy's subscriptions, and the names and versions that Envoy
// has recorded. The session also has the live upstream connection, and during a move the next one. It turns events into
// effects, without a clock or sockets. The loop around the session (stream.go) has the clock and the sockets. A
// Subscription is one of the agent's own on Envoy's stream, for example to the trust bundle. State-of-the-world streams
// pass unchanged (sotw.go).
//
// # One move
//
// A replica reports on the stream that another replica owns this proxy. With Config.Follow the session dials the owner,
// at the pace of moves (pace.go). The first request on the new connection asks for the name of the owner
// (agentapi.OwnerURL), and for no resource of Envoy. With that request the stream waits for admission, while the old
// connection still serves Envoy. When the stream is admitted and no response is in flight, the session drops the old
// connection. It then sends the requests that Envoy would send on a new stream, with Envoy's versions.
//
// If a connection ends by itself, the resources of its unanswered responses count as in doubt. The session requests
// them again on the next connection. If the mirror does not know Envoy's whole state, the relay ends Envoy's stream
// too, and Envoy states its versions on its next stream. The state is not known after a resource with a TTL, a request
// with resource locators, a response without a nonce or a message that does not parse. It is also not known on a
// state-of-the-world stream, and on a stream without requests.
//
// # Minimum revision
//
// Every delta response names the store revision that it is based on (system_version_info), and the header of the stream
// names the store. The newest revision that an agent has seen is its minimum revision, which the agent states on its
// next stream. While etcd answers, a replica confirms with etcd that it is up to date before it answers a new stream.
// While etcd does not answer, a replica that is behind the agent's minimum waits for that revision, 5 s at most. Then
// it refuses the stream (Unavailable, with its own revision in a trailer). The minimum also has the place of the state
// in the chain of heads (the leaders' writes, store/kv). Revisions begin again when etcd is restored, so the place is
// compared even while etcd answers.
//
// A refused agent dials another replica, and Envoy keeps its configuration. If all replicas are cut off from etcd and
// the newest replica is gone, the agent finds only replicas that are behind. After a minute and 8 such attempts in a
// row it lowers its minimum to the newest revision among them, and a replica with that revision serves it
// (min_revision.go). Stock agents state no minimum, so a replica that is behind serves them, too.
//
// When an agent moves Envoy's stream, it begins the new stream with the request for the owner, and states Envoy's
// versions only after admission. The old replica serves until then, so the minimum with which the stream began may be
// outdated. At the first request for Envoy's types, the new replica therefore confirms once more that it is up to date
// (serve.Proxy.Confirm). If etcd does not answer then, the new stream ends, and the agent reconnects with its present
// minimum.
//
// # Invariants, held by tests
//
// Envoy does not notice a move. No resource goes back to an older revision, unless the minimum is lowered. Of Envoy's
// messages, only one is under way in each direction, and HTTP/2 flow control holds back the others at their sender.
// Only the relay's own few requests are queued. While an upstream is replaced, requests only change the mirror.
//
// Owns: the socket, the mirror of Envoy's recorded resources, the agent's subscriptions, the minimum revision, the pace
// of dials and moves.
// Reads: Config, and the heads of messages.
// Never: reads the body of a resource for Envoy.
package relay
