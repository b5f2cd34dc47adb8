package sidecar

import (
	"cmp"
	"strconv"
	"strings"

	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/xds"
)

// routeKind says what a route configuration is for.
type routeKind uint8

const (
	noRoute  routeKind = iota
	ofPort             // all hosts with HTTP at a port
	ofHost             // one host at a port where the protocol is found out: every name that arrives there means it
	ofSocket           // all hosts of an egress listener that is a Unix socket
	ofFilter           // any other name: unknownHosts
	ofProxy            // all hosts with HTTP at all their ports: requests to the HTTP proxy
)

// routeKey identifies the virtual host of a host in a route configuration, and the route configuration. The zero
// routeKey is no route configuration. Comparable.
type routeKey struct {
	kind routeKind
	port uint32 // of ofPort and ofHost; of ofProxy the port of the virtual host
	text string // the host of ofHost, the socket of ofSocket with unix://, the name of ofFilter
}

// unknownHosts is the route configuration of plain HTTP at addresses without a listener, which is routed by its host
// (dnscache.Unknown). It has the catch-all alone.
var unknownHosts = routeKey{kind: ofFilter, text: xds.AllowAny}

// config describes the route configuration. That of the HTTP proxy has virtual hosts of all ports.
func (k routeKey) config() routes.Config {
	c := routes.Config{Name: k.name(), Port: k.port, OneHost: k.kind == ofHost, WithPorts: k.kind == ofProxy}
	if c.WithPorts {
		c.Port = 0
	}
	return c
}

// id is the id of a host's virtual host within the route configuration. That of the HTTP proxy has one for each port.
func (k routeKey) id(host string) string {
	if k.kind == ofProxy {
		return xds.VirtualHost(host, k.port)
	}
	return host
}

// withoutPort removes from a domain the port that the route configuration of the HTTP proxy adds.
func (k routeKey) withoutPort(domain string) string {
	if k.kind == ofProxy {
		return strings.TrimSuffix(domain, xds.VirtualHost("", k.port))
	}
	return domain
}

// name is the name of the route configuration: the port, host:port, or unix:// and the path.
func (k routeKey) name() string {
	switch k.kind {
	case ofPort:
		return strconv.FormatUint(uint64(k.port), 10)
	case ofHost:
		return xds.VirtualHost(k.text, k.port)
	case ofProxy:
		return xds.HTTPProxy
	case noRoute, ofSocket, ofFilter:
	}
	return k.text
}

func (k routeKey) compare(o routeKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.port, o.port), cmp.Compare(k.text, o.text))
}

// keyOf is the route configuration for a port at an egress listener.
func keyOf(e *egress, port uint32) routeKey {
	if e.unixSocket() {
		return routeKey{kind: ofSocket, text: e.bind}
	}
	return routeKey{kind: ofPort, port: port}
}
