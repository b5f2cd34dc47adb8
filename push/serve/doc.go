// Package serve is the xDS server: gRPC streams (delta and state of the world) around push/delta, with turns from
// push/fanout.
//
// # Data structures
//
// Server has the streams, and passes each to its Planner (implemented by push/join around push/plan). Join returns a
// Proxy, whose Set is the target configuration of the proxy. A stream has one reading goroutine, which is gRPC's
// handler, and no goroutine of its own for sending: a worker of the fan-out sends during the stream's turn.
//
// exchange (exchange.go) holds the state of one stream, and is the only owner of its delta.State. The reader, the
// sender and the watch pass events to it and execute the results. Its lock is never held during a send or a call into
// another package of a Config: the facts that the state needs from the quarantine, budgets and credentials are looked
// up before. sender (sender.go) decides which goroutine sends. One goroutine sends from its first request for a
// response until no response is left: first a worker, and from the first response that may block a goroutine of the
// stream (send.go). A turn that comes meanwhile is added to its task.
//
// Agents request types of their own on the same stream (AgentType, agent_resources.go), which are dynamic types of its
// delta.State. Tools send requests too (Answer, answer.go).
//
// # One change
//
// The view's moved callback marks the stream in a lane (stream.moved). In its turn, send requests responses from the
// exchange until nothing differs, or the credit is used up (send.go). Encoded resources are shared; only the envelope
// is made for the stream (codec.go). A request is authenticated once for the stream, parsed from gRPC's buffers, and
// passed to the exchange. An ACK frees credit, a NACK is a report for push/quarantine, and a new subscription asks for
// a turn.
//
// While etcd is away a replica answers from its last state, except to agents that have seen a newer one elsewhere.
// Those connect to another replica first (shard/relay).
//
// # Invariants, held by tests
//
// No byte of a resource is copied for a stream. A client that does not read or acknowledge in time is closed, and
// affects no other client. The memory that a client's requests cause is bounded for the stream and for the identity
// (push/budget). A panic ends one stream. A stream ends when its right does (recheck, ca/expiry).
//
// Owns: the streams and the goroutines that read and write them. Reads: views, through Planner. Never: the snapshot, a
// builder.
package serve
