// Package agentapi encodes and decodes the messages that navarchd and navarch-agent exchange on an ADS stream, in
// addition to those of Envoy.
//
// # Resources
//
// An agent subscribes to these types on the delta stream that it forwards for Envoy, after Envoy's first request. The
// responses are for the agent, which does not forward them to Envoy. Requests, nonces, ACK and NACK are those of delta
// xDS.
//
//	type URL                                                  name       body                    Go type
//	navarch.io/owner                                          owner      google.protobuf.Struct  Owner
//	...transport_sockets.tls.v3.CertificateValidationContext  ROOTCA     the type of the URL     Trust
//	navarch.io/bootstrap                                      bootstrap  google.protobuf.Struct  BootstrapPatch (list)
//	...istio.networking.nds.v1.NameTable                      (empty)    istio's pkg/dns/proto   Name (list)
//
// The name table has an empty name, because agents request it by a wildcard, as Istio's agents do. An agent may also
// begin a stream with a request for the owner (the replica to which its proxy belongs). When the replica has admitted
// this stream, the agent moves its Envoy to the replica. A stream may also be for the bootstrap only. The agent opens
// such a stream before it starts Envoy, and closes it after the response.
//
// # Metadata of a stream
//
//	navarch-store      header in both directions: the opaque name of the store to which revisions belong
//	navarch-revision   header from the agent: the revision of MinRevision
//	navarch-place      header from the agent, if it understands places: the place of MinRevision, which may be empty
//	navarch-behind     trailer of a stream that is refused because the replica is behind: the replica's revision
//
// The field system_version_info of every delta response has the revision of the store from which the response was made,
// in decimal. For an agent that understands places, a space and a place may follow. A place is a position in the
// sequence of all writes of leaders. The place in a response is the position of the newest state that the replica has
// read. The agent states the newest revision and place on its next stream (MinRevision).
//
// An invalid header counts as absent. An invalid message is an error, because of which the agent refuses the response.
//
// Owns: nothing.
// Reads: its arguments only.
// Never: uses a stream, a connection or the mesh's configuration.
//
// # Agent resources in the server
//
// Each client has at most one resource of each of these types. Clients with equal resources share the encoded bytes. A
// resource is sent when it changes. Flow control and resumption are the same as for all other types.
//
// The mesh's trust (Trust) is one of these types. Roots and revocation lists are always sent together. A replica that
// cannot decrypt its CA keys yet sends neither.
package agentapi
