// Package agentapi is the protocol between navarchd and navarch-agent: what the two say to each other on an ADS stream beside what Envoy
// asks. Each message has its encoding and its decoding side by side here, and nowhere else.
//
// # Resources
//
// An agent subscribes to these types by name, on the delta stream that it carries for Envoy, after Envoy's first request; the answers are
// its own and not passed on to Envoy. Requests, nonces, ACK and NACK are those of delta xDS.
//
//	type URL                                                   name    body                                          what
//	navarch.io/owner                                           owner   google.protobuf.Struct                        Owner
//	...transport_sockets.tls.v3.CertificateValidationContext   ROOTCA  the message of the type URL                   Trust
//	navarch.io/bootstrap                                       bootstrap  google.protobuf.Struct                     BootstrapPatch, any number
//	...istio.networking.nds.v1.NameTable                       (none)  a NameTable of istio's pkg/dns/proto         Name, any number
//
// The name table has no name: it is asked for by a wildcard, as stock agents do. The owner may be the only thing that is asked for, as the first request of a stream: the agent moves its Envoy there once that stream
// was let in. So may the bootstrap, on a stream that the agent opens before there is an Envoy, and ends with the answer.
//
// # Metadata of a stream
//
//	navarch-store      in the header of both directions: the name of the store that revisions are of; opaque
//	navarch-revision   from the agent: MinRevision
//	navarch-place      from the agent: its place; there, and perhaps empty, where the agent understands places
//	navarch-behind     in the trailer of a stream that was refused because this replica has less than navarch-revision: what it has
//
// Every delta response says in system_version_info which revision of the store it was made of, in decimal, and to an agent that
// understands it, after a space, where the newest state that the replica has read stands among all that leaders have written. The agent
// keeps the highest revision, whichever replica said it, and the last place, and names them on its next stream.
//
// What is foreign is decoded with care: a header that is not as described here counts as absent, and a message that is not is an error,
// for which the agent refuses the response.
//
// Owns: nothing; values are immutable.  Reads: nothing.  Never: a stream, a connection, the snapshot.
//
// # Agent resources in the server
//
// An agent asks for these types on the stream that it carries for Envoy. Each client has one resource of such a type,
// encoded once for all clients that have an equal one. A resource is sent when it changes and counts against the
// stream's credit. push/delta treats these types as dynamic types, with the nonces, ACKs, NACKs, credit and resume of
// all other types.
//
// The mesh's trust is such a type (push/trust). Roots and revocation lists always travel together, so a replica that
// cannot unseal the keyring sends neither. ca/agent keeps the newest list of each issuer, and reports a root as held
// only once the agent has the root's list.
package agentapi
