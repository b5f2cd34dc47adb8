// Package serve is the xDS server. It runs the state machine of push/delta on gRPC streams (delta and state of the
// world). The fan-out (push/fanout) decides when a stream may send, which is called the stream's turn.
//
// # Data structures
//
// Server contains the streams. For each stream it calls Planner.Join, which push/join implements around push/plan. Join
// returns a Proxy, whose Set is the proxy's target configuration. A stream has one reading goroutine, gRPC's handler.
// It has no goroutine for sending: a worker of the fan-out sends during the stream's turn.
//
// exchange (exchange.go) contains the state of one stream, and is the only owner of its delta.State. The reader, the
// sender and Server.watch pass events to the exchange and execute the results. The exchange's lock is never held during
// a send, or during a call to the quarantine, the budgets or the credentials. The results of such calls are obtained
// before the lock is acquired.
//
// sender (sender.go) decides which goroutine sends. One goroutine at a time sends, until no response is left. A worker
// sends first. At the first response that may block, a new goroutine of the stream continues (send.go). If a turn is
// granted meanwhile, the sending goroutine does the work of this turn too.
//
// Agents request resource types of their own on the same stream (AgentType, agent_resources.go). These are dynamic
// types of the stream's delta.State. Tools also send requests (Answer, answer.go).
//
// # One change
//
// When a proxy's set changes, the Planner calls the callback moved. It marks the stream in a lane, the urgency of the
// change (stream.moved). When the stream's turn is granted, the function send requests responses from the exchange
// until nothing differs or the credit is used up (send.go). The credit is the number of bytes that may be sent without
// an acknowledgement. Encoded resources are shared between streams; each stream encodes only the envelope (codec.go).
// The caller is authenticated once for the stream. A request is parsed from gRPC's buffers and passed to the exchange.
// An ACK frees credit, a NACK is reported to push/quarantine, and a new subscription requests a turn.
//
// While etcd is unavailable, a replica answers from its last state. It refuses agents that have seen a newer state at
// another replica. Agents try other replicas before such a replica (shard/relay).
//
// # Invariants, checked by tests
//
// No byte of a resource is copied for a stream. The stream of a client that does not read or acknowledge in time is
// closed, and other clients are not affected. The memory that a client's requests cause is bounded for the stream and
// for the identity (push/budget). A panic ends one stream. A stream ends when its caller is no longer authorised
// (recheck, ca/expiry).
//
// Owns: the streams and the goroutines that read and write them.
// Reads: sets of resources, through Planner.
// Never: reads snapshots; builds resources.
package serve
