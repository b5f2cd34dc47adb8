// Package route encodes route configurations: a small head, followed by virtual hosts that package vhost has encoded.
//
// Owns: nothing. Reads: its Spec only. Never: reads the snapshot of all records, or a view (the configuration of a
// group of proxies); decodes a virtual host.
package route

import (
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec contains all inputs of one RouteConfiguration.
type Spec struct {
	Name  string                     // name by which listeners request the route configuration, such as "80" or "host:port"
	Hosts intern.List[*xds.Fragment] // encoded virtual hosts, in order; a fragment may contain several virtual hosts
	// WithPorts makes Envoy compare the domains of virtual hosts with the request's host and port, not the host alone.
	WithPorts bool
	Patches   intern.List[model.Patch] // matching MERGE patches of ROUTE_CONFIGURATION, in order of application
}
