// Package serve is the xDS server: gRPC streams (delta and state of the world) around push/delta, with turns from push/fanout.
//
// # Data structures
//
// Server has the streams, and hands each to its Planner (implemented by push/join around push/plan): Join gives a Proxy, whose Set is what
// the proxy should have. A stream has one reading goroutine, which is gRPC's handler, and no goroutine of its own for sending: a worker of the
// fan-out sends while it has the stream's turn.
//
// exchange (exchange.go) is what is under way on one stream, and the only owner of its delta.State: the reader, the sender and the watch hand
// it events and do what it returns. Its lock is never held while something is sent, nor while anything that a Config is made of is called:
// what the state has to know of the quarantine, of budgets and of credentials is looked up before. sender (sender.go) says who sends: one
// goroutine from its first question for a response until there is none, a worker first, and from the first response that may block one of its
// own (send.go). A turn that comes meanwhile is added to its task.
//
// Agents ask for types of their own on the same stream (AgentType, agent_resources.go), which are dynamic types of its delta.State, and tools
// ask questions (Answer, answer.go).
//
// # One change
//
// The view's moved callback marks the stream in a lane (stream.moved). When its turn comes, send asks the exchange for responses until nothing
// differs, or the credit is used up (send.go): encoded resources are shared, and only the envelope is made for the stream (codec.go). A
// request that arrives is authenticated once for the stream, parsed from gRPC's buffers, and given to the exchange: an ACK frees credit, a NACK
// is a report for push/quarantine, a new subscription asks for a turn.
//
// While etcd is away a replica answers from what it has, except to agents that have seen more elsewhere: they look for
// another replica first (shard/relay).
//
// # Invariants, held by tests
//
// No byte of a resource is copied for a stream. A client that does not read, or does not acknowledge in time, is closed, and harms nobody
// else. What a stream keeps because of what its client wrote is bounded for the stream and for the identity (push/budget). A panic ends
// one stream. A stream ends when its right does (recheck, ca/expiry).
//
// Owns: the streams and the goroutines that read and write them.  Reads: views, through Planner.  Never: the snapshot, a builder.
package serve
