// Package agentapi is the protocol between navarchd and navarch-agent: their messages on an ADS stream beside those of
// Envoy. The encoding and the decoding of each message are side by side here, and nowhere else.
//
// # Resources
//
// An agent subscribes to these types by name, on the delta stream that it forwards for Envoy, after Envoy's first
// request. The responses are for the agent and are not forwarded to Envoy. Requests, nonces, ACK and NACK are those of
// delta xDS.
//
//	type URL                                                   name       body                      Go type
//	navarch.io/owner                                           owner      google.protobuf.Struct    Owner
//	...transport_sockets.tls.v3.CertificateValidationContext   ROOTCA     the type of the URL       Trust
//	navarch.io/bootstrap                                       bootstrap  google.protobuf.Struct    BootstrapPatch (list)
//	...istio.networking.nds.v1.NameTable                       (empty)    istio's pkg/dns/proto     Name (list)
//
// The name table has no name: agents request it by a wildcard, as stock agents do. The owner may be the only type on a
// stream, in its first request: the agent moves its Envoy to that replica once the stream is admitted. So may the
// bootstrap, on a stream that the agent opens before it starts Envoy, and closes after the response.
//
// # Metadata of a stream
//
//	navarch-store      header in both directions: the name of the store of the revisions; opaque
//	navarch-revision   header from the agent: the revision of MinRevision
//	navarch-place      header from the agent: the place of MinRevision, or empty; agents that understand places send it
//	navarch-behind     trailer of a stream that is refused because the replica is behind navarch-revision: its revision
//
// Every delta response has the revision of the store from which it was made in system_version_info, in decimal. For an
// agent that understands places, a space follows, and the place of the newest state that the replica has read among all
// writes of leaders. The agent keeps the highest revision of all replicas and the last place, and states them on its
// next stream.
//
// Input is decoded defensively: an invalid header counts as absent. An invalid message is an error, for which the agent
// refuses the response.
//
// Owns: nothing; values are immutable.  Reads: nothing.  Never: a stream, a connection, the snapshot.
//
// # Agent resources in the server
//
// An agent requests these types on the stream that it forwards for Envoy. Each client has one resource of such a type,
// encoded once for all clients with an equal one. A resource is sent when it changes and counts against the stream's
// credit. push/delta treats these types as dynamic types, with the nonces, ACKs, NACKs, credit and resume of all other
// types.
//
// The mesh's trust is such a type (push/trust). Roots and revocation lists always travel together, so a replica that
// cannot unseal the keyring sends neither. ca/agent keeps the newest list of each issuer, and reports a root as held
// only once the agent has the root's list.
package agentapi
