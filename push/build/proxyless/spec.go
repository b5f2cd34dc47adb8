// Package proxyless builds the listeners of applications with gRPC's own xDS client: API listeners, by which clients
// find routes, and listeners of servers. The listeners have only fields and filters that grpc-go supports (gRFC A27,
// A36, A41), because grpc-go refuses a listener with an unknown filter.
//
// Owns: nothing. Reads: its Specs (Client and Server) only. Never: reads the snapshot of all records, a view (the
// configuration of a group of proxies), or a clock.
package proxyless

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Client is the input of the API listener for one name and port that clients may call.
type Client struct {
	Name  string // host:port, as in the client's target xds:///host:port
	Route string // name of the route configuration: outbound|port||host
}

// Server is the input of the listener for one address and port of a gRPC server.
type Server struct {
	Bind     string // an IP address, without brackets
	Port     uint32
	MTLS     bool                       // only the mesh's mTLS is accepted; false: only plain text
	Closed   bool                       // all calls are refused, for example because a policy does not parse
	Policies intern.List[*model.Policy] // AuthorizationPolicies that select the workload
	Mesh     *model.Mesh                // states the trust domains; not nil
}
