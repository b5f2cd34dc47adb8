// Package delta is the xDS protocol as a state machine, for one stream: requests and new sets of resources go in,
// responses and reports of refusals come out. State of the world is a fold of the same machine (sotw.go).
//
// # Data structures
//
// State has a target, the newest manifest.Set for the client. For each resource type it has two manifests that all
// streams share: acked, which the client has acknowledged, and sent, which it has once it acknowledges everything in
// flight. Names for which neither is true (subscribed late, refused, claimed by a resuming client, unknown) are
// overrides, one small record each. So a stream that is up to date costs a few pointers, whatever the number of
// resources. flights are responses that are not acknowledged.
//
// # One change
//
// Target sets the new set. Next makes the next response of the first type, in the order of make before break
// (compose.go), that differs from the client's state and may be sent. decide determines the action for each name
// (decide.go): send a difference; answer a subscription; send a placeholder where Envoy would wait for ever. Request
// processes an ACK, which makes sent the new acked, or a NACK. A NACK puts the refused version into quarantine by name
// if Envoy names it; otherwise halving finds it (nack.go). The other resources of the response are sent again.
//
// # Clusters that warm
//
// Envoy warms a new or changed cluster until it has everything that the cluster needs: an assignment, secrets, an
// answer of DNS, a round of health checks. Until all clusters are warm it answers no response of CDS, and the answers
// that wait may be refusals. So nothing else waits for an answer of CDS:
//
//   - EDS, SDS and ECDS wait for no other type. An assignment is sent again behind each CDS response that changes its
//     cluster.
//   - Several CDS responses may be in flight. All but the largest hold less than the credit when another one is sent
//     (credit.go); a response that only removes clusters is exempt.
//   - A cluster is open while the client has acknowledged no version of it. An open cluster is warm all the same if it
//     needs only its assignment and secrets, the assignment was sent behind it, and the client has the secrets
//     (warm.go).
//   - A listener or route that newly names an open cluster waits until that is warm, acknowledged or refused, Patience
//     at most. Listeners with RBAC, JWT, ext_authz or TLS, in the old version or the new one, never wait, nor does
//     virtualInbound: policies are not held back. A listener is not removed while a new one waits. Before the client
//     requests CDS nothing waits.
//   - In the same way a route waits if a virtual host that the client has newly names a cluster that does not exist:
//     its DestinationRule, Service or ServiceEntry may come after the VirtualService. New virtual hosts do not wait.
//   - A cluster is removed once LDS, RDS and ECDS without it are acknowledged, and the client has all routes and
//     secrets that its listeners request: Envoy acknowledges a listener before that is warm, and serves with the old
//     one meanwhile. An open cluster that no resource names is removed at once.
//   - If a cluster is refused, listeners and routes that went ahead of the answer are sent in their last good version
//     again (ahead.go), until they change or the cluster is accepted.
//   - An Envoy that resumes while a cluster warms does not request CDS. It is sent all assignments again, because the
//     cluster may warm for one that came before it. When its time to resume is over (EndResume), it is also sent all
//     clusters unasked. It lists its other clusters when it requests CDS.
//   - A client of state of the world answers only the newest of several responses; the answer is for all of them.
//
// Time is an event (Tick); Wake returns when it matters next.
//
// Types that a server has beside Envoy's are dynamic types of the same machine (dynamic.go): one resource for each
// client, of which Offer passes the newest. Agents request them.
//
// # Requests
//
// Requests are read in the buffers that gRPC provides (pieces.go), in one walk that sums up names and versions on the
// way (manifest.Sum: hashes under a seed of this process). When a proxy resumes a subscription these sums are compared
// first, and single names only if the sums differ. push/view decodes a node in the same way. No protobuf message is
// made of a request or a node.
//
// Names that a client requests are kept while there is room (bound.go). Further names are left out, and the stream ends
// if they may matter: Envoy repeats all its subscriptions on the next stream. Identities are bounded by what they can
// prove (push/budget), never by node ids.
//
// # Invariants, held by tests
//
// After its last ACK a client has its target, except for refused and withheld versions (model tests). A response
// contains only differences. The bytes that the client may not have read are bounded by the credit: it has read
// everything before a response that it answers. Names without a resource are bounded in number and bytes (bound.go).
// State calls no other package: withheld versions (Withhold) and the memory for names (Cost, Grant, Surplus) are
// events; Names and Diffs are caches that streams share. One goroutine at a time may use a State.
//
// Owns: the subscriptions, the held resources and the responses in flight of one stream. Reads: push/manifest. Never: a
// clock, a socket, gRPC, the snapshot.
package delta
