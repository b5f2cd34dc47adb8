package walk

import (
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// seen contains the properties that the listener filters recognise in the first bytes of a connection.
type seen struct {
	protocol     string // raw_buffer or tls
	sni          string
	applications []string // ALPN, or the protocol that http_inspector recognises
}

// inspect returns the properties that the listener filters tls_inspector and http_inspector recognise.
func (w *walker) inspect(l *listenerv3.Listener) seen {
	has := func(name string) bool {
		name = "envoy.filters.listener." + name
		return slices.ContainsFunc(l.GetListenerFilters(), func(f *listenerv3.ListenerFilter) bool {
			return f.GetName() == name && (f.GetFilterDisabled() == nil || !w.disabled(f.GetFilterDisabled()))
		})
	}
	s := seen{protocol: "raw_buffer"}
	switch {
	case w.SpeaksTLS() && has("tls_inspector"):
		s.protocol, s.sni, s.applications = "tls", strings.ToLower(w.serverName()), w.alpn()
	case w.SpeaksTLS():
	case w.Scheme == "http" && has("http_inspector"):
		s.applications = []string{"http/1.1"}
	case w.Scheme == "h2c" && has("http_inspector"):
		s.applications = []string{"h2c"}
	}
	return s
}

// alpn returns the protocols that the client offers in its TLS handshake. A client with an Identity offers the
// protocols of Istio's proxies. Any other client offers its HTTP version.
func (w *walker) alpn() []string {
	switch {
	case w.Identity == "" && w.Scheme == "https":
		return []string{"http/1.1"}
	case w.Identity == "" && w.Scheme == "h2":
		return []string{"h2"}
	case w.Identity == "":
		return nil
	case w.Scheme == "http" || w.Scheme == "https":
		return []string{"istio-http/1.1", "istio", "http/1.1"}
	case w.Scheme == "h2c" || w.Scheme == "h2":
		return []string{"istio-h2", "istio", "h2"}
	}
	return []string{"istio-peer-exchange", "istio"}
}

// disabled reports whether a predicate disables a listener filter for the connection.
func (w *walker) disabled(p *listenerv3.ListenerFilterChainMatchPredicate) bool {
	switch rule := p.GetRule().(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		return slices.ContainsFunc(rule.OrMatch.GetRules(), w.disabled)
	case *listenerv3.ListenerFilterChainMatchPredicate_AndMatch:
		return !slices.ContainsFunc(rule.AndMatch.GetRules(),
			func(one *listenerv3.ListenerFilterChainMatchPredicate) bool { return !w.disabled(one) })
	case *listenerv3.ListenerFilterChainMatchPredicate_NotMatch:
		return !w.disabled(rule.NotMatch)
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		return rule.AnyMatch
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		port := int32(w.Port)
		return port >= rule.DestinationPortRange.GetStart() && port < rule.DestinationPortRange.GetEnd()
	}
	return false
}

// chain selects the filter chain as Envoy does (FilterChainMatch in Envoy's API). It compares one property of the
// connection after the other. At each property it keeps the chains with the most specific match. If no chain matches,
// the result is the default filter chain, which may be nil.
func (w *walker) chain(l *listenerv3.Listener) *listenerv3.FilterChain {
	s := w.inspect(l)
	left := l.GetFilterChains()
	for _, score := range []func(*listenerv3.FilterChainMatch) int{
		func(m *listenerv3.FilterChainMatch) int {
			return rank(m.GetDestinationPort() != nil, m.GetDestinationPort().GetValue() == w.Port, 1)
		},
		w.prefixRank,
		func(m *listenerv3.FilterChainMatch) int { return sniRank(m.GetServerNames(), s.sni) },
		func(m *listenerv3.FilterChainMatch) int {
			return rank(m.GetTransportProtocol() != "", m.GetTransportProtocol() == s.protocol, 1)
		},
		func(m *listenerv3.FilterChainMatch) int { return alpnRank(m.GetApplicationProtocols(), s.applications) },
	} {
		best := 0
		for _, c := range left {
			best = max(best, score(c.GetFilterChainMatch()))
		}
		left = slices.DeleteFunc(slices.Clone(left), func(c *listenerv3.FilterChain) bool { return score(c.GetFilterChainMatch()) != best })
	}
	if len(left) == 0 {
		return l.GetDefaultFilterChain()
	}
	return left[0]
}

// rank returns a number that is higher for a more specific match of a property. It is the last argument if the property
// matches, and -1 if the property does not match. It is 0 if there is no condition on the property.
func rank(says, matches bool, specific int) int {
	switch {
	case !says:
		return 0
	case matches:
		return specific
	}
	return -1
}

// alpnRank ranks the application protocols of a match. A protocol that the client offers earlier has a higher rank.
func alpnRank(wanted, offered []string) int {
	for i, p := range offered {
		if slices.Contains(wanted, p) {
			return len(offered) - i
		}
	}
	return rank(len(wanted) > 0, false, 0)
}

// prefixRank ranks the ranges of a match by the length of the longest range that contains the connection's address.
func (w *walker) prefixRank(m *listenerv3.FilterChainMatch) int {
	best := -1
	ip, err := netip.ParseAddr(w.Address)
	for _, p := range m.GetPrefixRanges() {
		a, bad := netip.ParseAddr(p.GetAddressPrefix())
		if err == nil && bad == nil && netip.PrefixFrom(a, int(p.GetPrefixLen().GetValue())).Contains(ip) {
			best = max(best, 1+int(p.GetPrefixLen().GetValue()))
		}
	}
	return rank(len(m.GetPrefixRanges()) > 0, best >= 0, best)
}

// sniRank ranks the server names of a match. An exact name ranks above a wildcard, and a longer wildcard ranks above a
// shorter one.
func sniRank(patterns []string, sni string) int {
	best := -1
	for _, p := range patterns {
		switch {
		case p == sni:
			best = max(best, len(p)+1)
		case strings.HasPrefix(p, "*.") && strings.HasSuffix(sni, p[1:]):
			best = max(best, len(p))
		}
	}
	return rank(len(patterns) > 0, best >= 0, best)
}
