// Package relay is the agent's half of the way to the control plane: Envoy speaks ADS to a Unix socket, and each of its streams is carried
// over one upstream connection at a time, byte for byte except nonces.
//
// # Data structures
//
// session (pure) is one delta stream of Envoy: mirror, the names and versions that Envoy has recorded and what it subscribes to; live, the
// upstream connection that serves it; next, the one that it moves to. The loop around it (stream.go) has the clock and the sockets: events
// go in, effects come out. Subscription is what the agent asks for itself on the same stream: the owner of the proxy, the trust bundle.
// A stream of state of the world is carried as it is (sotw.go).
//
// # One move
//
// A replica says on the stream that another one owns this proxy. The session dials that one, with the pace of dials, and asks only for the
// owner, so that it is let in while the old connection goes on serving Envoy. Once it is let in, and nothing is in flight, the session
// says there what Envoy would say on a new stream, with the versions that Envoy has, and drops the old connection. Where a connection ended
// by itself, what was on its way counts as in doubt, and is sent again. Where the mirror does not know all that Envoy has (state of
// the world, resources with a TTL, a message that does not parse, a stream that said nothing), Envoy's stream ends too, and Envoy says it
// all again.
//
// # Invariants, held by tests
//
// Envoy sees nothing of a move, and no resource goes back to an older revision: the newest that was seen goes along as the minimum (min_revision.go).
// Nothing is queued except the relay's own few requests: one message at a time is under way in each direction, and HTTP/2 flow control holds
// back the rest at its sender. While a stream has no upstream, requests only change the mirror.
//
// Owns: the socket, the mirror of what Envoy has recorded, the agent's subscriptions, the minimum revision, the pace of dials and moves.
// Reads: Config, and the heads of messages.  Never: the body of a resource that is Envoy's.
package relay
