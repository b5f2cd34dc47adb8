package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Mode is the method by which inbound connections reach Envoy.
type Mode string

// The modes of istio-iptables. Redirect translates the destination; the application sees Envoy's address as the source.
// TProxy leaves packets unchanged, so that Envoy can connect to the application from the client's address.
const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// The ports and marks that Istio's proxies use.
const (
	DefaultOutboundPort = 15001
	DefaultInboundPort  = 15006
	DefaultTunnelPort   = 15008
	DefaultDNSPort      = 15053
	DefaultProxyUID     = 1337
	DefaultMark         = 1337
	DefaultRouteTable   = 133
	// outboundMark marks packets of Envoy to the own Pod's address in mode TProxy (istio-iptables:
	// constants.OutboundMark).
	outboundMark = 1338
)

// Ports are destination ports: all, or a list.
type Ports struct {
	All  bool
	List []uint16
}

// Prefixes are destination addresses: all, or a list of IPv4 and IPv6 prefixes.
type Prefixes struct {
	All  bool
	List []netip.Prefix
}

// Config describes the traffic that is redirected. Lists may be empty; traffic that no field names is not redirected.
type Config struct {
	OutboundPort uint16 // port of Envoy for the application's outbound connections
	InboundPort  uint16 // port of Envoy for inbound connections
	TunnelPort   uint16 // port of HBONE, which reaches Envoy without redirection
	DNSPort      uint16 // port of the agent's DNS server

	// ProxyUIDs and ProxyGIDs are the users and groups of Envoy and the agent, whose own traffic is not redirected.
	ProxyUIDs, ProxyGIDs []uint32

	Mode       Mode
	Mark       uint32 // mark of packets for a transparent socket; TProxy only
	RouteTable uint32 // route table that delivers them locally; TProxy only

	Inbound        Ports    // ports to redirect
	InboundExclude []uint16 // exceptions, if Inbound is all

	Outbound        Prefixes       // destinations to redirect
	OutboundExclude []netip.Prefix // exceptions
	OutboundPorts   []uint16       // ports to redirect for all destinations that are not excluded
	// OutboundExcludePorts are never redirected, neither TCP nor UDP.
	OutboundExcludePorts []uint16

	ExcludeInterfaces []string // interfaces without redirection, in both directions
	VirtualInterfaces []string // interfaces of virtual machines in the Pod: their inbound packets are outbound traffic

	// OwnerGroups, if not empty, are the only groups whose outbound traffic is redirected. Traffic of OwnerGroupsExclude
	// is not redirected.
	OwnerGroups, OwnerGroupsExclude []uint32

	// DNS to DNSServers, UDP and TCP at port 53, goes to the agent; with DNSAll, DNS to any server.
	DNSServers []netip.Addr
	DNSAll     bool

	DropInvalid bool // drop packets of no connection, instead of answering with a reset
}

// Default returns the configuration of istio-iptables without flags, which redirects no traffic.
func Default() Config {
	return Config{OutboundPort: DefaultOutboundPort, InboundPort: DefaultInboundPort, TunnelPort: DefaultTunnelPort, DNSPort: DefaultDNSPort,
		ProxyUIDs: []uint32{DefaultProxyUID}, ProxyGIDs: []uint32{DefaultProxyUID}, Mode: Redirect,
		Mark: DefaultMark, RouteTable: DefaultRouteTable}
}

// MaxRules limits a set, so that an annotation cannot make the kernel's transaction fail or slow down the Pod's
// packets.
const MaxRules = 4096

// Validate returns an error that names the first field that is not valid.
func (c *Config) Validate() error {
	if c.Mode != Redirect && c.Mode != TProxy {
		return fmt.Errorf("mode %q: want %s or %s", c.Mode, Redirect, TProxy)
	}
	if c.OutboundPort == 0 || c.InboundPort == 0 || c.DNSPort == 0 || c.TunnelPort == 0 {
		return errors.New("a port of the proxy is 0")
	}
	if len(c.ProxyUIDs)+len(c.ProxyGIDs) == 0 {
		return errors.New("neither user nor group of the proxy is known: its own traffic would come back to it without end")
	}
	if c.Mode == TProxy && (c.Mark == 0 || c.Mark == outboundMark || c.RouteTable == 0) {
		return fmt.Errorf("mark %d, route table %d: neither can be 0, and mark %d is taken", c.Mark, c.RouteTable, outboundMark)
	}
	for _, name := range slices.Concat(c.ExcludeInterfaces, c.VirtualInterfaces) {
		if err := validInterface(name); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(c.OutboundExclude, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return errors.New("all destinations are excluded: leave the list of those that are included empty instead")
	}
	if n := c.Rules().Len(); n > MaxRules {
		return fmt.Errorf("%d rules; at most %d", n, MaxRules)
	}
	return nil
}

// validInterface follows the kernel (net/core/dev.c, dev_valid_name), and also rejects characters that a rule's text
// cannot contain.
func validInterface(name string) error {
	bad := func(r rune) bool {
		return r <= ' ' || r == '/' || r == ':' || r == '"' || r == '\\' || r == '*' || r > '~'
	}
	if name == "" || len(name) > 15 || name == "." || name == ".." || slices.ContainsFunc([]rune(name), bad) {
		return fmt.Errorf("interface %.20q: that is no name of one", name)
	}
	return nil
}

// capturesDNS reports whether any DNS goes to the agent.
func (c *Config) capturesDNS() bool { return c.DNSAll || len(c.DNSServers) > 0 }

// includesLoopback reports whether a prefix of Outbound covers loopback addresses.
func (c *Config) includesLoopback() bool {
	return slices.ContainsFunc(c.Outbound.List, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
}
