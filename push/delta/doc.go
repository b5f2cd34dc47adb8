// Package delta is the xDS protocol as a state machine, for one stream: requests and new sets of resources go in,
// responses and reports of refusals come out. State of the world is a fold of the same machine (sotw.go).
//
// # Data structures
//
// State has a target, the newest manifest.Set that the client should have. For each resource type it has two manifests
// that all streams share: acked, what the client has acknowledged, and sent, what it has when it acknowledges
// everything that is on its way. Names of which neither is true (subscribed late, refused, claimed by a client that
// resumes, unknown) are overrides, one small record each. So a stream that is up to date costs a few pointers, whatever
// the number of resources. flights are responses that are not acknowledged.
//
// # One change
//
// Target takes the new set. Next makes the next response of the first type, in the order of make before break
// (compose.go), that differs from what the client has and may be sent. decide says of each name what has to be sent
// (decide.go): what differs; what is subscribed to and has to be answered; a placeholder where Envoy would wait for
// ever. Request takes an ACK, which makes acked what was sent, or a NACK: the refused version is put into quarantine by
// name where Envoy says which it is, else it is found by halves (nack.go); the rest of the response is sent again.
//
// # Clusters that warm
//
// Envoy warms a new or changed cluster until it has what it needs: an assignment, secrets, an answer of DNS, a round of
// health checks. Until all clusters are warm it answers no response of CDS, and the answers that wait may be refusals.
// So nothing else waits for an answer of CDS:
//
//   - EDS, SDS and ECDS wait for no other type. An assignment is sent again behind each CDS response that changes its
//     cluster.
//   - Several CDS responses may be in flight. All but the largest hold less than the credit when another one is sent
//     (credit.go); a response that only removes clusters is exempt.
//   - A cluster is open while the client has acknowledged no version of it. An open cluster is warm all the same where
//     only its assignment and its secrets are needed, the assignment was sent behind it, and the client has the secrets
//     (warm.go).
//   - A listener or route that newly names an open cluster waits until that is warm, acknowledged or refused, Patience
//     at most. Listeners with RBAC, JWT, ext_authz or TLS, in the old version or the new one, never wait, nor does
//     virtualInbound: policies are not held back. A listener is not removed while a new one waits. Before the client
//     asks for CDS nothing waits.
//   - A cluster is removed once LDS, RDS and ECDS without it are acknowledged, and the client has all routes and
//     secrets that its listeners ask for: Envoy acknowledges a listener before that is warm, and serves with the old
//     one meanwhile. An open cluster that nothing names is removed at once.
//   - Where a cluster is refused, listeners and routes that went ahead of the answer are sent in their last good
//     version again (ahead.go), until they change or the cluster is accepted.
//   - An Envoy that resumes while a cluster warms does not ask for CDS. It is sent all assignments again, because the
//     cluster may warm for one that came before it; and, when its time to resume is over (EndResume), all clusters,
//     unasked. What it has beside these it says when it asks.
//   - A client of state of the world answers only the newest of several responses; the answer is for all of them.
//
// Time is an event (Tick); Wake says when it matters next.
//
// Types that a server has beside Envoy's are dynamic types of the same machine (dynamic.go): one resource for each
// client, of which Offer gives the newest. Agents ask for them.
//
// # Requests
//
// Requests are read in the buffers that gRPC hands over (pieces.go), in one walk that sums up names and versions on
// the way (manifest.Sum: hashes under a seed of this process). When a proxy resumes a subscription these sums are
// compared first, and single names only where the sums differ. push/view decodes a node in the same way. No protobuf
// message is made of a request or a node.
//
// Names that a client asks for are kept while there is room (bound.go). Further names are left out, and the stream
// ends where that may matter: Envoy repeats all its subscriptions on the next stream. Identities are bounded by what
// they can prove (push/budget), never by node ids.
//
// # Invariants, held by tests
//
// What a client has after its last ACK is its target, but for refused and withheld versions (model tests). A response
// is made only of what differs. What the client may not have read is bounded in bytes, the credit: it has read what
// precedes a response that it answers. Names of which there is nothing are bounded in number and bytes (bound.go). It
// calls nobody: what is withheld (Withhold) and what may be kept (Cost, Grant, Surplus) are events; Names and Diffs are
// memories that streams share. State belongs to whoever calls it, one goroutine at a time.
//
// Owns: what one stream subscribed to, holds and has in flight.  Reads: push/manifest.  Never: a clock, a socket, gRPC,
// the snapshot.
package delta
