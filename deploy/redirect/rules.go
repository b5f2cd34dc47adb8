package redirect

import (
	"net/netip"
	"slices"
)

// Order and purpose of the rules follow istio-iptables (tools/istio-iptables/pkg/capture/run.go), with three
// differences. One table serves both address families. TCP for a transparent socket is dropped while the socket is
// absent. Packets of Envoy with the mark of transparent sockets are not redirected again.

var (
	loopback4 = netip.MustParsePrefix("127.0.0.1/32")
	loopback6 = netip.MustParsePrefix("::1/128")
	// magic4 and magic6 are the source addresses of Envoy's connections to addresses without a listener (cluster
	// InboundPassthroughCluster).
	magic4 = netip.MustParsePrefix("127.0.0.6/32")
	magic6 = netip.MustParsePrefix("::6/128")
)

const (
	loopbackName = "lo"
	dnsPort      = 53
)

// Rules returns the rules of a valid configuration.
func (c *Config) Rules() Set {
	var s Set
	if c.capturesDNS() {
		s.Chains = append(s.Chains, chain("dns_out", Filter, Output, priorityRaw, c.dnsZonesOut()),
			chain("dns_in", Filter, Prerouting, priorityRaw, c.dnsZonesIn()))
	}
	if mangle := c.mangleIn(); len(mangle) > 0 {
		s.Chains = append(s.Chains, chain("transparent_in", Filter, Prerouting, priorityMangle, mangle))
	}
	if c.transparent() {
		s.Transparent = Transparent{Mark: c.Mark, Table: c.RouteTable}
		s.Chains = append(s.Chains, chain("transparent_out", Route, Output, priorityMangle, c.mangleOut()))
	}
	s.Chains = append(s.Chains, chain("inbound", NAT, Prerouting, priorityNAT, c.natIn()),
		chain("outbound", NAT, Output, priorityNAT, c.natOut()))
	return s
}

func chain(name string, kind Kind, hook Hook, priority int32, rules []Rule) Chain {
	return Chain{Name: name, Kind: kind, Hook: hook, Priority: priority, Rules: rules}
}

// transparent reports whether inbound connections go to a transparent socket.
func (c *Config) transparent() bool {
	return c.Mode == TProxy && (c.Inbound.All || len(c.Inbound.List) > 0)
}

func is(f Field, n uint32) Match       { return Match{Field: f, Number: n} }
func not(f Field, n uint32) Match      { return Match{Field: f, Number: n, Not: true} }
func on(f Field, name string) Match    { return Match{Field: f, Name: name} }
func at(f Field, p netip.Prefix) Match { return Match{Field: f, Prefix: p} }
func tcp() Match                       { return is(Protocol, TCP) }
func when(matches ...Match) *ruleMaker { return &ruleMaker{matches} }
func (r *ruleMaker) accept() Rule      { return r.do(Action{Verb: Accept}) }
func (r *ruleMaker) redirect(port uint16) Rule {
	return r.do(Action{Verb: RedirectTo, Number: uint32(port)})
}
func (r *ruleMaker) zone(n uint32) Rule              { return r.do(Action{Verb: SetZone, Number: n}) }
func (r *ruleMaker) do(actions ...Action) (out Rule) { return Rule{If: r.matches, Do: actions} }

// ruleMaker builds a rule from its conditions.
type ruleMaker struct{ matches []Match }

// owners returns the comparisons with the users and groups of the proxy.
func (c *Config) owners() (out []Match) {
	for _, uid := range c.ProxyUIDs {
		out = append(out, is(UID, uid))
	}
	for _, gid := range c.ProxyGIDs {
		out = append(out, is(GID, gid))
	}
	return out
}

// natIn returns the rules that redirect inbound connections.
func (c *Config) natIn() (out []Rule) {
	for _, name := range c.ExcludeInterfaces {
		out = append(out, when(on(InInterface, name)).accept())
	}
	for _, name := range c.VirtualInterfaces {
		for _, to := range c.destinations() {
			out = append(out, when(append([]Match{on(InInterface, name), tcp()}, to...)...).redirect(c.OutboundPort))
		}
		out = append(out, when(on(InInterface, name)).accept())
	}
	if c.transparent() {
		return out
	}
	out = append(out, when(tcp(), is(Port, uint32(c.TunnelPort))).accept())
	if !c.Inbound.All {
		for _, port := range c.Inbound.List {
			out = append(out, when(tcp(), is(Port, uint32(port))).redirect(c.InboundPort))
		}
		return out
	}
	for _, port := range c.InboundExclude {
		out = append(out, when(tcp(), is(Port, uint32(port))).accept())
	}
	return append(out, when(tcp()).redirect(c.InboundPort))
}

// destinations returns the comparisons with the redirected destinations; an empty comparison matches all.
func (c *Config) destinations() (out [][]Match) {
	if c.Outbound.All {
		return [][]Match{{}}
	}
	for _, p := range c.Outbound.List {
		out = append(out, []Match{at(Destination, p)})
	}
	return out
}

// natOut returns the rules that redirect the application's connections, and Envoy's to its own Pod.
func (c *Config) natOut() (out []Rule) {
	for _, name := range c.ExcludeInterfaces {
		out = append(out, when(on(OutInterface, name)).accept())
	}
	for _, port := range c.OutboundExcludePorts {
		for _, protocol := range []uint32{TCP, UDP} {
			out = append(out, when(is(Protocol, protocol), is(Port, uint32(port))).accept())
		}
	}
	// Envoy to the application, from the client's address
	if c.transparent() {
		out = append(out, when(is(Mark, c.Mark)).accept())
	}
	for _, p := range []netip.Prefix{magic4, magic6} {
		out = append(out, when(on(OutInterface, loopbackName), at(Source, p)).accept())
	}
	out = append(out, c.natOwner()...)
	for _, gid := range c.OwnerGroupsExclude {
		out = append(out, when(is(GID, gid)).accept())
	}
	if len(c.OwnerGroups) > 0 {
		var none []Match
		for _, gid := range c.OwnerGroups {
			none = append(none, not(GID, gid))
		}
		out = append(out, when(none...).accept())
	}
	out = append(out, c.natDNS()...)
	for _, p := range []netip.Prefix{loopback4, loopback6} {
		out = append(out, when(at(Destination, p)).accept())
	}
	for _, p := range c.OutboundExclude {
		out = append(out, when(at(Destination, p)).accept())
	}
	for _, port := range c.OutboundPorts {
		out = append(out, when(tcp(), is(Port, uint32(port))).redirect(c.OutboundPort))
	}
	for _, to := range c.destinations() {
		out = append(out, when(append([]Match{tcp()}, to...)...).redirect(c.OutboundPort))
	}
	return out
}

// natOwner returns the rules for the proxy's own traffic. Its connections to its own Pod's address are treated as
// inbound (a workload that calls its own Service). All others pass, which prevents loops. The application's loopback
// connections pass, too.
func (c *Config) natOwner() (out []Rule) {
	for _, owner := range c.owners() {
		for _, p := range []netip.Prefix{loopback4, loopback6} {
			own := []Match{on(OutInterface, loopbackName), {Field: Destination, Prefix: p, Not: true}, tcp(), not(Port, uint32(c.TunnelPort))}
			if c.capturesDNS() { // application, agent, DNS server: must not pass Envoy's inbound side
				own = append(own, not(Port, dnsPort))
			}
			out = append(out, when(append(own, owner)...).redirect(c.InboundPort))
		}
	}
	for _, owner := range c.owners() {
		out = append(out, when(owner).accept())
	}
	if c.includesLoopback() {
		return out
	}
	if !c.capturesDNS() {
		return append(out, when(on(OutInterface, loopbackName)).accept())
	}
	for _, protocol := range []uint32{TCP, UDP} { // a DNS server may be on this machine
		out = append(out, when(on(OutInterface, loopbackName), is(Protocol, protocol), not(Port, dnsPort)).accept())
	}
	return out
}

// dnsServers returns the comparisons with the servers whose DNS goes to the agent.
func (c *Config) dnsServers(f Field) (out [][]Match) {
	if c.DNSAll {
		return [][]Match{{}}
	}
	for _, s := range c.DNSServers {
		out = append(out, []Match{at(f, netip.PrefixFrom(s, s.BitLen()))})
	}
	return out
}

func (c *Config) natDNS() (out []Rule) {
	for _, to := range c.dnsServers(Destination) {
		for _, protocol := range []uint32{TCP, UDP} {
			out = append(out, when(slices.Concat([]Match{is(Protocol, protocol), is(Port, dnsPort)}, to)...).redirect(c.DNSPort))
		}
	}
	return out
}

// Zones of connection tracking for DNS over UDP. The application's query and the agent's, to the same server, may use
// the same source port one after the other. In one zone the second would count as a packet of the first, and be sent to
// the agent again.
const (
	zoneAgent       = 1 // agent to server
	zoneApplication = 2 // application to agent
)

func (c *Config) dnsZonesOut() (out []Rule) {
	udp := is(Protocol, UDP)
	for _, owner := range c.owners() {
		out = append(out, when(udp, is(Port, dnsPort), owner).do(Action{Verb: SetZone, Number: zoneAgent}, Action{Verb: Accept}),
			when(udp, is(SourcePort, uint32(c.DNSPort)), owner).do(Action{Verb: SetZone, Number: zoneApplication}, Action{Verb: Accept}))
	}
	for _, to := range c.dnsServers(Destination) {
		out = append(out, when(slices.Concat([]Match{udp, is(Port, dnsPort)}, to)...).zone(zoneApplication))
	}
	return out
}

func (c *Config) dnsZonesIn() (out []Rule) {
	for _, from := range c.dnsServers(Source) {
		out = append(out, when(slices.Concat([]Match{is(Protocol, UDP), is(SourcePort, dnsPort)}, from)...).zone(zoneAgent))
	}
	return out
}
