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

// pair is one combination of destination and server name that a TCP chain matches.
type pair struct {
	destination netip.Prefix // zero: all destinations
	name        string       // empty: all names
}

// tcpChains builds the TCP chains of an outbound listener. The chains in the first result have a match. The second
// result is the first chain without a match, which receives all other connections. It is nil if every chain has a
// match. Envoy does not order chains, and refuses a listener in which two chains have the same match. Therefore each
// pair belongs to the first element of o.TCP that matches the pair.
func (o Outbound) tcpChains() (chains []*listenerv3.FilterChain, rest *listenerv3.FilterChain) {
	claimed := map[pair]bool{}
	for _, ch := range o.TCP.All() {
		destinations, ok := destinations(ch.CIDRs.All())
		names, ok2 := serverNames(ch.SNI.All())
		if !ok || !ok2 || (names != nil && !o.Caps.Has(xds.CapTLSInspector)) {
			continue // the chain matches nothing
		}
		for _, m := range unclaimed(destinations, names, claimed) {
			built := &listenerv3.FilterChain{
				FilterChainMatch:              m.filterChainMatch(),
				Filters:                       append(o.bySNI(ch), o.outboundTCP(ch.proxy(), ch.Protocol)...),
				TransportSocketConnectTimeout: connectTimeout,
			}
			if built.FilterChainMatch == nil {
				rest = built
			} else {
				chains = append(chains, built)
			}
		}
	}
	return chains, rest
}

// match matches every combination of its destinations and server names. Empty destinations match all destinations,
// and empty names match all names.
type match struct {
	destinations []netip.Prefix
	names        []string
}

// unclaimed returns the combinations of destinations and names that are not in claimed, and adds them to claimed.
// Neighbouring destinations with the same remaining names share one match in the result.
func unclaimed(destinations []netip.Prefix, names []string, claimed map[pair]bool) []match {
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
			if p := (pair{d, n}); !claimed[p] {
				claimed[p] = true
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

// filterChainMatch converts the match to Envoy's type. It returns nil if the match matches all connections.
func (m match) filterChainMatch() *listenerv3.FilterChainMatch {
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

// destinations parses "ip" and "ip/length" to sorted, distinct prefixes without host bits. Invalid entries are skipped.
// The results nil and true stand for all destinations. The result false means that all entries are invalid, so the
// chain matches nothing.
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

// serverNames normalises SNI hosts to sorted, distinct names in lower case. Envoy supports a wildcard only as the whole
// first label, so hosts with other wildcards are skipped. The results nil and true stand for all names. The result
// false means that all hosts are skipped, so the chain matches nothing.
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
