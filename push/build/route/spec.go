// Package route builds route configurations: a small head, and the encoded virtual hosts after it.
//
// Owns: nothing.  Reads: its Spec and nothing else.  Never: the snapshot, a view; the bytes of a virtual host.
package route

import (
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is the input of one outbound RouteConfiguration.
type Spec struct {
	Name  string                     // "80", or "host:port"
	Hosts intern.List[*xds.Fragment] // virtual hosts by name, the catch-all last
	// WithPorts makes Envoy compare the domains of virtual hosts with the request's host and port, not the host alone.
	WithPorts bool
	Patches   intern.List[model.Patch] // matching MERGE patches of ROUTE_CONFIGURATION, in order of application
}
