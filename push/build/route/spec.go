// Package route draws route configurations: a small head, and the encoded virtual hosts after it.
//
// Owns: nothing.  Reads: its Spec and nothing else.  Never: the snapshot, a view; the bytes of a virtual host.
package route

import (
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is all that one outbound RouteConfiguration can depend on.
type Spec struct {
	Name  string                     // "80", or "host:port"
	Hosts intern.List[*xds.Fragment] // virtual hosts by name, the catch-all last
	// WithPorts: the ports of requests' names are compared, too; else what is before them decides.
	WithPorts bool
	Patches   intern.List[model.Patch] // ROUTE_CONFIGURATION that merge, and match
}
