package redirect

import "net/netip"

// mangleIn hands what comes for the application to a transparent socket; in both modes it drops what belongs to no connection, if that is asked
// for.
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
		// Envoy to the application, from the client's address: the connection keeps the mark for the answers (mangleOut).
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

// toTransparent: packets of a connection that is known go to its socket, a new one to Envoy's; while that does not listen it is dropped.
func (c *Config) toTransparent(matches ...Match) (out []Rule) {
	with := func(more ...Match) *ruleMaker { return when(append(matches[:len(matches):len(matches)], more...)...) }
	mark := Action{Verb: SetMark, Number: c.Mark}
	out = append(out, with(is(ConnState, KnownConn)).do(mark, Action{Verb: Accept}))
	for _, p := range []netip.Prefix{loopback4, loopback6} {
		out = append(out, with(at(Destination, p)).accept())
	}
	for _, family := range []uint32{IPv4, IPv6} {
		out = append(out, with(is(Family, family)).do(Action{Verb: TransparentTo, Number: uint32(c.InboundPort), Family: family}, mark, Action{Verb: Accept}))
	}
	return append(out, with().do(Action{Verb: Drop}))
}

// mangleOut marks what has to come back to a transparent socket.
func (c *Config) mangleOut() (out []Rule) {
	for _, name := range c.ExcludeInterfaces {
		out = append(out, when(on(OutInterface, name)).accept())
	}
	lo := on(OutInterface, loopbackName)
	out = append(out, when(tcp(), lo, is(Mark, c.Mark)).accept())
	for _, owner := range c.owners() {
		for _, p := range []netip.Prefix{loopback4, loopback6} {
			// Envoy to its own Pod's address: as if it came from outside.
			out = append(out, when(tcp(), lo, Match{Field: Destination, Prefix: p, Not: true}, owner).do(Action{Verb: SetMark, Number: outboundMark}))
		}
	}
	// The application's answers to the client's address go to Envoy's socket.
	return append(out, when(tcp(), is(ConnMark, c.Mark)).do(Action{Verb: RestoreMark}))
}
