package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Mode is how inbound connections reach Envoy.
type Mode string

// The modes of istio-iptables: Redirect translates the destination, and Envoy sees the client's address on the connection to itself only; TProxy
// leaves the packets as they are, so that Envoy can connect to the application from the client's address.
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
	// outboundMark is what packets of Envoy to the own Pod's address have in mode TProxy (istio-iptables: constants.OutboundMark).
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

// Config is what is redirected. Lists may be empty; nothing is redirected that no field names.
type Config struct {
	OutboundPort uint16 // where Envoy takes what the application sends
	InboundPort  uint16 // where Envoy takes what comes for the application
	TunnelPort   uint16 // of HBONE: it goes to Envoy as it is
	DNSPort      uint16 // where the agent answers DNS

	// What these users and groups send is Envoy's or the agent's, and goes past both.
	ProxyUIDs, ProxyGIDs []uint32

	Mode       Mode
	Mark       uint32 // of packets that go to a transparent socket; TProxy alone
	RouteTable uint32 // by which they are delivered locally; TProxy alone

	Inbound        Ports    // to be redirected
	InboundExclude []uint16 // not; where Inbound is all

	Outbound        Prefixes       // destinations to be redirected
	OutboundExclude []netip.Prefix // not
	OutboundPorts   []uint16       // to be redirected whatever the destination, unless that is excluded
	// OutboundExcludePorts are not redirected, neither TCP nor UDP.
	OutboundExcludePorts []uint16

	ExcludeInterfaces []string // neither in nor out
	VirtualInterfaces []string // what comes in here is outbound traffic, of virtual machines in the Pod

	// OwnerGroups, if any, are the only groups whose outbound traffic is redirected; that of OwnerGroupsExclude is not.
	OwnerGroups, OwnerGroupsExclude []uint32

	// DNS to these servers, UDP and TCP at port 53, goes to the agent; DNSAll: to any server.
	DNSServers []netip.Addr
	DNSAll     bool

	DropInvalid bool // packets that belong to no connection are dropped, instead of answered with a reset
}

// Default is what istio-iptables does without flags: no traffic but Envoy's own is named.
func Default() Config {
	return Config{OutboundPort: DefaultOutboundPort, InboundPort: DefaultInboundPort, TunnelPort: DefaultTunnelPort, DNSPort: DefaultDNSPort,
		ProxyUIDs: []uint32{DefaultProxyUID}, ProxyGIDs: []uint32{DefaultProxyUID}, Mode: Redirect, Mark: DefaultMark, RouteTable: DefaultRouteTable}
}

// MaxRules bounds a set, so that an annotation cannot make the kernel's transaction fail half-read, or the Pod's packets slow.
const MaxRules = 4096

// Validate says what is wrong with a configuration.
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

// validInterface follows the kernel (net/core/dev.c, dev_valid_name), and leaves out what a rule could not be written with.
func validInterface(name string) error {
	bad := func(r rune) bool {
		return r <= ' ' || r == '/' || r == ':' || r == '"' || r == '\\' || r == '*' || r > '~'
	}
	if name == "" || len(name) > 15 || name == "." || name == ".." || slices.ContainsFunc([]rune(name), bad) {
		return fmt.Errorf("interface %.20q: that is no name of one", name)
	}
	return nil
}

// capturesDNS says whether any DNS goes to the agent.
func (c *Config) capturesDNS() bool { return c.DNSAll || len(c.DNSServers) > 0 }

// includesLoopback says whether the application's own loopback traffic is asked for by a prefix of it.
func (c *Config) includesLoopback() bool {
	return slices.ContainsFunc(c.Outbound.List, func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
}
