// Package proxyless draws the listeners of applications with gRPC's own xDS client: those by which clients find routes, and those of
// servers. What is sent is what grpc-go takes (gRFC A27, A36, A41): it refuses a listener for any filter that it does not know.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
package proxyless

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Client is all that the listener of one name and port that clients may call can depend on.
type Client struct {
	Name  string // host:port, as the client is told to call it
	Route string // outbound|port||host
}

// Server is all that the listener of one address and port of a server can depend on.
type Server struct {
	Bind     string // an IP
	Port     uint32
	MTLS     bool                       // mTLS of the mesh alone; else connections in the clear alone
	Closed   bool                       // nobody may call: a policy that cannot be enforced selects the workload
	Policies intern.List[*model.Policy] // AuthorizationPolicies that select the workload
	Mesh     *model.Mesh
}
