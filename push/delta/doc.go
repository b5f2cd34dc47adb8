// Package delta is the xDS protocol of one stream as a state machine. Its inputs are requests and new sets of
// resources. Its outputs are responses and reports of ACKs and NACKs. State-of-the-world responses are derived from
// delta responses (sotw.go).
//
// # Data structures
//
// State has a target, the newest manifest.Set for the client. For each resource type it has two stacks of manifests,
// which streams share. The stack acked has the resources that the client has acknowledged. The stack sent has the
// resources of the client after it acknowledges all responses in flight. A name for which acked and sent are wrong has
// an override, a small record. Examples are names that are subscribed late, refused or without a resource (unknown).
// Another example is a claimed name: a resuming client listed another version. So a stream that is up to date needs a
// few pointers, whatever the number of resources. flights are responses that are not acknowledged.
//
// # One change
//
// Target sets the new set. Next goes through the types in the order of make before break (compose.go). It returns a
// response of the first type that differs from the client's state and may be sent. For each name decide determines the
// action (decide.go): send a difference, answer a subscription, or send a placeholder where Envoy would wait for ever.
// Request processes an ACK or a NACK. After an ACK, acked is the stack that sent was when the response was made. If the
// message of a NACK names the refused resource, the version of this resource is quarantined. A quarantined version is
// not sent again on this stream. Otherwise the response is sent again in halves until the refused resource is found
// (nack.go). The other resources of the response are sent again.
//
// # Clusters that warm
//
// Envoy warms a new or changed cluster until it has everything that the cluster needs: an assignment, secrets, an
// answer of DNS, a round of health checks. Until all clusters are warm, Envoy does not acknowledge or refuse any
// response of CDS. So nothing else waits for an answer to CDS:
//
//   - EDS, SDS and ECDS wait for no other type. An assignment is sent again behind each CDS response that changes its
//     cluster.
//   - Several CDS responses may be in flight. When another one is sent, the responses in flight without the largest
//     have less than the credit in sum (credit.go). A response that only removes clusters is exempt from this limit.
//   - A cluster is open while the client has acknowledged no version of it. An open cluster counts as warm if it needs
//     only its assignment and secrets, the assignment was sent after it, and the client has the secrets (warm.go).
//   - A listener or route that newly names an open cluster waits until the cluster is warm, acknowledged or refused,
//     but at most for Patience. Resources with RBAC, JWT, ext_authz or TLS, in the old version or the new one, never
//     wait, and neither does virtualInbound, because policies are not held back. A listener is not removed while a new
//     one waits. Before the client requests CDS, no resource waits for an open cluster.
//   - A route waits in the same way if a virtual host that the client already has newly names an outbound cluster that
//     does not exist. The cluster's DestinationRule, Service or ServiceEntry may come after the VirtualService. New
//     virtual hosts do not wait.
//   - A cluster is removed after the client has acknowledged LDS, RDS and ECDS without it, and has all routes and
//     secrets that its listeners request. Envoy acknowledges a listener before the listener is warm, and serves with
//     the old listener meanwhile. An open cluster that no sent resource names is removed at once.
//   - If a cluster is refused, listeners and routes that name it and were sent before the refusal are sent again in
//     their last good version (ahead.go), until they change or the cluster is accepted.
//   - An Envoy that resumes while a cluster warms does not request CDS. It is sent all assignments again, because the
//     cluster may wait for an assignment that was sent before it. After the time to resume (EndResume), it is also sent
//     all clusters without a request. When it later requests CDS, it lists its clusters. Listed clusters that do not
//     exist any more are removed then.
//   - A state-of-the-world client answers only the newest of several responses; the answer counts for all of them.
//
// The machine has no clock: Tick passes the time, and Wake returns when Next must be called again.
//
// Types that a server has in addition to Envoy's are dynamic types (dynamic.go). A client has at most one resource of
// each dynamic type. Offer passes the newest. Agents request them.
//
// # Requests
//
// Requests are parsed in the buffers that gRPC provides (pieces.go), without making protobuf messages. One pass over a
// request also sums up its names and versions (manifest.Sum: hashes with a seed of this process). When a proxy resumes
// a subscription, these sums are compared first, and single names only if the sums differ. push/view decodes a node in
// the same way.
//
// Names that a client requests are kept while there is room (bound.go). Further names are left out. If resources with
// such names may exist later, the caller ends the stream (Again), because Envoy repeats all its subscriptions on the
// next stream. Budgets belong to authenticated identities (push/budget), never to node IDs.
//
// # Invariants, held by tests
//
// After its last ACK a client has its target, except for refused and withheld versions (model tests). A delta response
// contains only differences, answers to subscriptions, and resources that Envoy needs again. While the bytes that the
// client may not have read reach the credit, only responses that are due (Reply.Due) are sent. A client has read
// everything before a response that it answers. Names without a resource are bounded in number and bytes (bound.go).
// Withheld versions (Withhold) and the memory for names (Cost, Grant, Surplus) are passed in, so that State depends on
// no other service. Names and Diffs are caches that streams share. One goroutine at a time may use a State.
//
// Owns: the subscriptions, the held resources and the responses in flight of one stream. Reads: push/manifest,
// push/xds, store/intern, store/protowalk. Never: a clock, a socket, a stream of gRPC, the snapshot.
package delta
