package redirect

import "net/netip"

// mangleIn returns the rules that pass inbound connections to a transparent socket. In both modes, with DropInvalid,
// they drop packets of no connection.
func (c *Config) mangleIn() (out []Rule) {
	if c.DropInvalid {
		out = append(out, when(is(ConnState, Invalid)).do(Action{Verb: Drop}))
	}
	if !c.transparent() {
		return out
	}
	for _, name := range append(c.ExcludeInterfaces[:len(c.ExcludeInterfaces):len(c.ExcludeInterfaces)], c.VirtualInterfaces...) {
		out = append(out, when(on(InInterface, name)).accept())
	}
	lo := on(InInterface, loopbackName)
	out = append(out,
		when(tcp(), is(Port, uint32(c.TunnelPort))).accept(),
		// Envoy to the application, from the client's address: the connection keeps the mark for the replies (mangleOut).
		when(tcp(), is(Mark, c.Mark)).do(Action{Verb: SaveMark}, Action{Verb: Accept}),
		when(tcp(), lo, at(Source, magic4)).accept(),
		when(tcp(), lo, at(Source, magic6)).accept(),
		when(tcp(), lo, not(Mark, outboundMark)).accept(), // the application to itself
	)
	if !c.Inbound.All {
		for _, port := range c.Inbound.List {
			out = append(out, c.toTransparent(tcp(), is(Port, uint32(port)))...)
		}
		return out
	}
	for _, port := range c.InboundExclude {
		out = append(out, when(tcp(), is(Port, uint32(port))).accept())
	}
	return append(out, c.toTransparent(tcp())...)
}

// toTransparent passes packets of an established connection to its socket, and a new connection to Envoy's socket.
// While Envoy does not listen, new connections are dropped.
func (c *Config) toTransparent(matches ...Match) (out []Rule) {
	with := func(more ...Match) *ruleMaker { return when(append(matches[:len(matches):len(matches)], more...)...) }
	mark := Action{Verb: SetMark, Number: c.Mark}
	out = append(out, with(is(ConnState, KnownConn)).do(mark, Action{Verb: Accept}))
	for _, p := range []netip.Prefix{loopback4, loopback6} {
		out = append(out, with(at(Destination, p)).accept())
	}
	for _, family := range []uint32{IPv4, IPv6} {
		out = append(out,
			with(is(Family, family)).do(Action{Verb: TransparentTo, Number: uint32(c.InboundPort), Family: family}, mark, Action{Verb: Accept}))
	}
	return append(out, with().do(Action{Verb: Drop}))
}

// mangleOut returns the rules that mark packets which must return to a transparent socket.
func (c *Config) mangleOut() (out []Rule) {
	for _, name := range c.ExcludeInterfaces {
		out = append(out, when(on(OutInterface, name)).accept())
	}
	lo := on(OutInterface, loopbackName)
	out = append(out, when(tcp(), lo, is(Mark, c.Mark)).accept())
	for _, owner := range c.owners() {
		for _, p := range []netip.Prefix{loopback4, loopback6} {
			// Envoy to its own Pod's address: treated as inbound.
			out = append(out,
				when(tcp(), lo, Match{Field: Destination, Prefix: p, Not: true}, owner).do(Action{Verb: SetMark, Number: outboundMark}))
		}
	}
	// Replies of the application to the client's address go to Envoy's socket.
	return append(out, when(tcp(), is(ConnMark, c.Mark)).do(Action{Verb: RestoreMark}))
}
