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
	// WithPorts compares the host of a request with its port; else the port is ignored.
	WithPorts bool
	Patches   intern.List[model.Patch] // ROUTE_CONFIGURATION MERGE that match, in order of application
}
