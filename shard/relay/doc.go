// Package relay carries Envoy's ADS streams to the control plane. Envoy connects to a Unix socket of the agent. For
// each of Envoy's streams, the relay has a connection to one replica of the control plane: the upstream. Resources pass
// unchanged. The relay may replace the upstream of a delta stream while Envoy's stream continues. It does so when the
// upstream ends, and when another replica owns the proxy (should serve it). From then on, the relay changes nonces, and
// requests that refer to an earlier upstream.
//
// # Data structures
//
// A session is the state of one delta stream of Envoy. Its mirror is a copy of Envoy's subscriptions, and of the names
// and versions of Envoy's resources. Envoy uses the live upstream. During a move to another replica, the session also
// has the next upstream. A session turns events into effects (actions), without a clock or sockets. The loop around the
// session (stream.go) has the clock and the sockets. A Subscription is a subscription of the agent itself on Envoy's
// stream, for example to the trust bundle. State-of-the-world streams pass unchanged (sotw.go).
//
// # One move
//
// A move begins when the replica at the live upstream names another replica as the owner of this proxy. With
// Config.Follow, the session dials the owner. Pauses between moves limit their number (movePace). The first request on
// the new connection asks only for the name of the owner (agentapi.OwnerURL). The new stream waits for admission by the
// owner, while the old connection still serves Envoy. When the new stream is admitted and no response is in flight, the
// session drops the old connection. On the new one, it sends the requests that Envoy would send on a new stream, with
// Envoy's versions.
//
// If an upstream ends by itself, Envoy may have applied responses that it has not acknowledged. The session requests
// the resources of these responses again on the next upstream. The relay ends Envoy's stream instead if the mirror does
// not know Envoy's whole state. Envoy then states its versions on its next stream. The state is not known after a
// resource with a TTL, a request with resource locators, a response without a nonce, or a message that does not parse.
// A state-of-the-world stream, and a stream without requests, also end with their upstream.
//
// # Minimum revision
//
// Every delta response names the store revision of its content (system_version_info). The response headers of the
// stream name the store. The newest revision that an agent has received is its minimum revision, which the agent states
// on its next stream. Before a replica answers a new stream, it confirms with etcd that it is up to date. If etcd does
// not answer, the replica compares its own revision with the minimum. With an older revision, it waits for the minimum,
// 5 s at most. After that it refuses the stream (Unavailable, with its own revision in a trailer).
//
// Revisions begin again when etcd is restored from a backup. So the minimum also has a place: a position in the history
// of the leaders' writes (store/kv). A replica compares the place even while etcd answers.
//
// A refused agent dials the control plane again, and Envoy keeps its configuration. If all replicas are cut off from
// etcd and the newest replica is gone, all others may have older revisions than the minimum. After at least 8 refusals
// in a row, and a minute, the agent lowers its minimum to the newest revision of these replicas (min_revision.go). The
// agents of Istio state no minimum, so even a replica with an old revision serves them.
//
// In a move, the old replica serves Envoy until the new stream is admitted. So the minimum that the agent stated at the
// start of the new stream may be outdated at its admission. At the first request for Envoy's types, the new replica
// therefore confirms again with etcd that it is up to date. If etcd does not answer, the new stream ends, and the agent
// reconnects with its present minimum.
//
// # Invariants, held by tests
//
// Envoy does not notice a move. No resource goes back to an older revision, unless the minimum is lowered. The relay
// carries one message of Envoy's stream at a time in each direction. HTTP/2 flow control holds back further messages at
// their sender. The relay queues only the few requests that it makes itself. While an upstream is replaced, Envoy's
// requests change only the mirror.
//
// Owns: Envoy's socket, the mirror, the agent's subscriptions, the minimum revision, the pauses between dials and
// between moves.
// Reads: Config, and all parts of messages except the bodies of resources for Envoy.
// Never: decodes the body of a resource for Envoy.
package relay
