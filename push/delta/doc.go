// Package delta is the xDS protocol as a state machine, for one stream: requests and new sets of resources go in, responses and reports
// of refusals come out. State of the world is a fold of the same machine (sotw.go).
//
// # Data structures
//
// State has a target, the newest manifest.Set that the client should have. For each resource type it has two manifests that all streams
// share: acked, what the client has acknowledged, and sent, what it has when it acknowledges everything that is on its way. Names of
// which neither is true (subscribed late, refused, claimed by a client that resumes, unknown) are overrides, one small record each. So a
// stream that is up to date costs a few pointers, whatever the number of resources. flights are responses that are not acknowledged.
//
// # One change
//
// Target takes the new set. Next makes the next response of the first type, in the order of make before break (compose.go), that differs from
// what the client has and may be sent: clusters and their endpoints are sent before the listeners and routes that use them, and removed
// after these. decide says of each name what has to be sent (decide.go): what differs; what is subscribed to and has to be answered; a
// placeholder where Envoy would wait for ever. Request takes an ACK, which makes acked what was sent, or a NACK: the refused version is put
// into quarantine by name where Envoy says which it is, else it is found by halves (nack.go); the rest of the response is sent again.
//
// Types that a server has beside Envoy's are dynamic types of the same machine (dynamic.go): one resource for each client, of which Offer
// gives the newest. Agents ask for them.
//
// # Invariants, held by tests
//
// What a client has after its last ACK is its target, but for refused and withheld versions (model tests). A response is made only of what
// differs. What is not acknowledged is bounded in bytes, and names of which there is nothing are bounded in number and bytes (bound.go).
// It calls nobody: what is withheld (Withhold) and what may be kept (Cost, Grant, Surplus) are events; Names and Diffs are memories that
// streams share.
// State belongs to whoever calls it, one goroutine at a time.
//
// Owns: what one stream subscribed to, holds and has in flight.  Reads: push/manifest.  Never: a clock, a socket, gRPC, the snapshot.
package delta
