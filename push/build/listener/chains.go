package listener

import (
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/xds"
)

// pair is one thing that a TCP chain can match: a destination and a server name, each zero for all.
type pair struct {
	destination netip.Prefix
	name        string
}

// tcpChains draws the TCP chains of an outbound listener: those that match something, and the first that matches
// everything (nil: none). Envoy has no order among chains and refuses a listener that matches one thing twice, so
// what an earlier chain has is taken from the later ones.
func (o Outbound) tcpChains() (chains []*listenerv3.FilterChain, rest *listenerv3.FilterChain) {
	taken := map[pair]bool{}
	for _, ch := range o.TCP.All() {
		destinations, ok := destinations(ch.CIDRs.All())
		names, ok2 := serverNames(ch.SNI.All())
		if !ok || !ok2 || (names != nil && !o.Caps.Has(xds.CapTLSInspector)) {
			continue // it can match nothing
		}
		for _, m := range free(destinations, names, taken) {
			drawn := &listenerv3.FilterChain{FilterChainMatch: m.draw(), Filters: append(o.bySNI(ch), o.outboundTCP(ch.proxy(), ch.Protocol)...), TransportSocketConnectTimeout: connectTimeout}
			if drawn.FilterChainMatch == nil {
				rest = drawn
			} else {
				chains = append(chains, drawn)
			}
		}
	}
	return chains, rest
}

// match is the product of destinations and server names, each empty for all.
type match struct {
	destinations []netip.Prefix
	names        []string
}

// free takes what is not taken yet of a product, as products: one where all destinations keep the same names.
func free(destinations []netip.Prefix, names []string, taken map[pair]bool) []match {
	anyDestination, anyName := destinations, names
	if len(anyDestination) == 0 {
		anyDestination = []netip.Prefix{{}}
	}
	if len(anyName) == 0 {
		anyName = []string{""}
	}
	var all []match
	for _, d := range anyDestination {
		m := match{}
		for _, n := range anyName {
			if p := (pair{d, n}); !taken[p] {
				taken[p] = true
				m.names = append(m.names, n)
			}
		}
		if len(m.names) == 0 {
			continue
		}
		if last := len(all) - 1; last >= 0 && slices.Equal(all[last].names, m.names) {
			all[last].destinations = append(all[last].destinations, d)
			continue
		}
		m.destinations = []netip.Prefix{d}
		all = append(all, m)
	}
	return all
}

// draw is the match for Envoy; nil: everything.
func (m match) draw() *listenerv3.FilterChainMatch {
	out := &listenerv3.FilterChainMatch{}
	for _, d := range m.destinations {
		if d.IsValid() {
			out.PrefixRanges = append(out.PrefixRanges, &corev3.CidrRange{
				AddressPrefix: d.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(d.Bits())),
			})
		}
	}
	for _, n := range m.names {
		if n != "" {
			out.ServerNames = append(out.ServerNames, n)
		}
	}
	if out.PrefixRanges == nil && out.ServerNames == nil {
		return nil
	}
	return out
}

// destinations reads "ip" and "ip/length", sorted, each once, host bits cut; nil: all. False: there are some and none
// can be read, so nothing matches.
func destinations(cidrs []string) ([]netip.Prefix, bool) {
	var out []netip.Prefix
	for _, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if addr = addr.Unmap(); addr.IsUnspecified() {
				return nil, true
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if prefix.Bits() == 0 {
			return nil, true
		}
		out = append(out, prefix.Masked())
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	return slices.Compact(out), len(out) > 0 || len(cidrs) == 0
}

// serverNames reads SNI hosts, sorted, each once; nil: all. Envoy compares in lower case, and knows wildcards only as a
// whole first label. False: there are some and none can match.
func serverNames(hosts []string) ([]string, bool) {
	var out []string
	for _, h := range hosts {
		if h == "*" {
			return nil, true
		}
		if h == "" || strings.Contains(strings.TrimPrefix(h, "*."), "*") {
			continue
		}
		out = append(out, strings.ToLower(h))
	}
	slices.Sort(out)
	return slices.Compact(out), len(out) > 0 || len(hosts) == 0
}
