package sidecar

import (
	"cmp"
	"strconv"
	"strings"

	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/xds"
)

// routeKind is the purpose of a route configuration.
type routeKind uint8

const (
	noRoute  routeKind = iota
	ofPort             // all hosts with HTTP at a port
	ofHost             // one host at a port whose protocol is detected; requests with any name are for this host
	ofSocket           // all hosts of an egress listener that is a Unix socket
	ofFilter           // a route configuration with any other name, such as unknownHosts
	ofProxy            // all hosts at all their HTTP ports, for requests to the HTTP proxy
)

// routeKey identifies a route configuration. Together with a host it identifies the host's virtual host in this route
// configuration. It is comparable. The zero routeKey stands for no route configuration.
type routeKey struct {
	kind routeKind
	port uint32 // the port of ofPort and ofHost; for ofProxy the port of the virtual host
	text string // the host of ofHost, "unix://" and the path of ofSocket, or the name of ofFilter
}

// unknownHosts is the route configuration for HTTP requests to addresses without a listener. These requests are routed
// by the name of their host (dnscache.Unknown). The only virtual host is the catch-all.
var unknownHosts = routeKey{kind: ofFilter, text: xds.AllowAny}

// config returns the description of the route configuration for package routes. The route configuration of the HTTP
// proxy contains virtual hosts of all ports, so its port is 0.
func (k routeKey) config() routes.Config {
	c := routes.Config{Name: k.name(), Port: k.port, OneHost: k.kind == ofHost, WithPorts: k.kind == ofProxy}
	if c.WithPorts {
		c.Port = 0
	}
	return c
}

// id returns the id of a host's virtual host within the route configuration. The id is the host, or host:port for the
// HTTP proxy, where a host has a virtual host for each port.
func (k routeKey) id(host string) string {
	if k.kind == ofProxy {
		return xds.VirtualHost(host, k.port)
	}
	return host
}

// withoutPort returns a domain without the port that the domains of the HTTP proxy have.
func (k routeKey) withoutPort(domain string) string {
	if k.kind == ofProxy {
		return strings.TrimSuffix(domain, xds.VirtualHost("", k.port))
	}
	return domain
}

// name returns the name of the route configuration: the port, host:port, "unix://" and the path, or text.
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

// compare compares keys by kind, port and text, as cmp.Compare does.
func (k routeKey) compare(o routeKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.port, o.port), cmp.Compare(k.text, o.text))
}

// keyOf returns the key of the route configuration for a port at an egress listener.
func keyOf(e *egress, port uint32) routeKey {
	if e.unixSocket() {
		return routeKey{kind: ofSocket, text: e.bind}
	}
	return routeKey{kind: ofPort, port: port}
}
