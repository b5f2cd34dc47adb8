// Package delta implements the xDS protocol of one stream as a state machine. Its inputs are requests and new sets of
// resources. Its outputs are responses, and reports of ACKs and NACKs. State-of-the-world responses are derived from
// delta responses (sotw.go).
//
// # Data structures
//
// State has a target, the newest set of resources for the client (manifest.Set). For each resource type it has two
// stacks. A stack (manifest.Stack) is an immutable collection of resources, which streams share. The stack acked has
// the resources that the client has acknowledged. The stack sent has the resources that the client will have after it
// acknowledges all responses in flight. A response is in flight until the client acknowledges or refuses it.
//
// A name for which acked or sent is wrong has an override, a small record of the client's state. Examples are names
// that were subscribed late, refused names, and unknown names, which have no resource. Another example is a claimed
// name: a resuming client has listed another version of the resource. A stream that is up to date needs only a few
// pointers, whatever the number of resources.
//
// # One change
//
// Target sets the new set. Next goes through the types in the order of make before break (compose.go). It returns a
// response of the first type that differs from the client's state and may be sent. The method decide determines the
// action for each name (decide.go): send a difference, answer a subscription, or send a placeholder where Envoy would
// wait for ever.
//
// Request processes an ACK or a NACK. An ACK sets acked to the value that sent had when the response was made. If the
// message of a NACK names the refused resource, this version of the resource is quarantined: it is not sent again on
// this stream. The other resources of the response are sent again. If the message names no resource, all resources are
// sent again in halves, until the refused resource is found (nack.go).
//
// # Clusters that warm
//
// Envoy warms a new or changed cluster until it has everything that the cluster needs: an assignment, secrets, an
// answer of DNS, a round of health checks. Until all clusters are warm, Envoy does not acknowledge or refuse any
// response of CDS. So other types do not simply wait for the answer to CDS. These rules apply instead:
//
//   - EDS, SDS and ECDS wait for no other type. An assignment is sent again after each CDS response that changes its
//     cluster.
//   - Several CDS responses may be in flight. Another one may be sent if the sizes of those in flight, without the
//     largest, sum up to less than the credit (credit.go). A response that only removes clusters is exempt from this
//     limit.
//   - A cluster is open while the client has acknowledged no version of it. An open cluster counts as warm if three
//     conditions hold: it needs only its assignment and secrets, its assignment was sent after the cluster, and the
//     client has the secrets (warm.go).
//   - A listener or route that newly names an open cluster waits until the cluster is warm, acknowledged or refused,
//     but at most for Patience. Before the client requests CDS, no resource waits for an open cluster. A listener is
//     not removed while a new listener waits.
//   - Policies are not held back. So resources whose old or new version has RBAC, JWT, ext_authz or TLS never wait, and
//     neither does the listener virtualInbound.
//   - A route waits in the same way if a virtual host that the client already has newly names an outbound cluster that
//     does not exist. The cluster's DestinationRule, Service or ServiceEntry may come after the VirtualService. New
//     virtual hosts do not wait.
//   - A cluster is removed once the client has acknowledged listeners, routes and filter configurations that do not
//     name it, and has all routes and secrets that its listeners request. Envoy acknowledges a listener before the
//     listener is warm, and uses the old listener until then. An open cluster that no sent resource names is removed at
//     once.
//   - If a cluster is refused, the client may have listeners and routes that were sent before the refusal and name the
//     cluster. Their last good versions are sent again (ahead.go). They stay in use until the listeners and routes
//     change, or the cluster is accepted.
//   - An Envoy that resumes while a cluster warms does not request CDS. All assignments are sent to it again, because
//     the cluster may wait for an assignment that was sent before the cluster. After the time to resume (EndResume),
//     all clusters are sent to it without a request. When it later requests CDS, it lists its clusters. Listed clusters
//     that do not exist any more are removed then.
//   - A state-of-the-world client answers only the newest of several responses. Its answer counts for all of them.
//
// State has no clock. Tick passes the time. Wake returns the time at which Next must be called again.
//
// Types that a server has in addition to Envoy's are dynamic types (dynamic.go). Agents request them. A client has at
// most one resource of each dynamic type. Offer passes the newest one.
//
// # Requests
//
// Requests are parsed in the buffers that gRPC provides (pieces.go), without making protobuf messages. One pass over a
// request also sums up its names and versions (manifest.Sum: hashes with a seed of this process). When a proxy resumes
// a subscription, these sums are compared first. Single names are compared only if the sums differ.
//
// Names that a client requests are kept while there is room (bound.go). Further names are left out. Again reports that
// names which were left out may have resources by now. The caller then ends the stream, because Envoy repeats all its
// subscriptions on the next stream.
//
// # Invariants, verified by tests
//
// After its last ACK a client has its target, except for refused and withheld versions. Withheld versions are those
// that the caller excludes (Withhold). A delta response contains only differences, answers to subscriptions, and
// resources that Envoy needs again. While the bytes that the client may not have read reach the credit, only responses
// that are due (Reply.Due) are sent. If the client has answered a response, it has read all earlier ones. Names without
// a resource are limited in number and bytes (bound.go).
//
// Callers pass withheld versions and the memory for names (Cost, Grant, Surplus), so that State depends on no other
// service. Names and Diffs are caches that streams share. One goroutine at a time may use a State.
//
// Owns: the subscriptions, the client's resources and the responses in flight of one stream. Reads: push/manifest,
// push/xds, store/intern, store/protowalk. Never: uses a clock, a socket or a gRPC stream; reads the snapshot of all
// records.
package delta
