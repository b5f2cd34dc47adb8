package walk

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// Identity returns the SPIFFE ID of a service account in the mesh's trust domain. The trust domain comes from the first
// SPIFFE prefix that a listener of the proxy requires in client certificates. If there is no such prefix, the trust
// domain is cluster.local.
func (m *Messages) Identity(namespace, account string) string {
	domain := "spiffe://cluster.local/"
	for _, l := range m.listeners {
		for _, chain := range l.GetFilterChains() {
			context := &tlsv3.DownstreamTlsContext{}
			if config := chain.GetTransportSocket().GetTypedConfig(); !config.MessageIs(context) || config.UnmarshalTo(context) != nil {
				continue
			}
			validation := context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()
			for _, san := range validation.GetMatchTypedSubjectAltNames() {
				if of := san.GetMatcher().GetPrefix(); strings.HasPrefix(of, "spiffe://") {
					return of + "ns/" + namespace + "/sa/" + account
				}
			}
		}
	}
	return domain + "ns/" + namespace + "/sa/" + account
}

// Ports returns the ports at which clients reach the workload or the gateway. The result is sorted and has no
// repetitions. It is nil if there are no such ports. The caller owns the slice.
func (m *Messages) Ports() (all []uint32) {
	// Only sidecars have this cluster and inbound listeners. All listeners of a gateway are for its clients.
	gateway := m.clusters[xds.InboundPassthrough] == nil && !slices.ContainsFunc(m.listeners, isInbound)
	for _, l := range m.listeners {
		own := l.GetAddress().GetSocketAddress().GetPortValue() // 0 for a Unix socket
		if l.GetName() != xds.VirtualInbound {
			if own > 0 && (gateway || isInbound(l)) {
				all = append(all, own)
			}
			continue
		}
		for _, chain := range l.GetFilterChains() {
			if port := chain.GetFilterChainMatch().GetDestinationPort().GetValue(); port > 0 && port != own {
				all = append(all, port)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isInbound reports whether a listener's traffic direction is inbound.
func isInbound(l *listenerv3.Listener) bool {
	return l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND
}

// Named returns two kinds of SPIFFE IDs: exact client IDs in the proxy's RBAC policies, and exact server IDs that its
// clusters accept. The result is sorted and has no repetitions. The caller owns the slice.
func (m *Messages) Named() []string {
	seen := map[string]bool{}
	add := func(matcher *matcherv3.StringMatcher) {
		if id := matcher.GetExact(); strings.HasPrefix(id, "spiffe://") {
			seen[id] = true
		}
	}
	for rules := range m.rules() {
		for _, policy := range rules.GetPolicies() {
			for _, p := range policy.GetPrincipals() {
				eachName(p, add)
			}
		}
	}
	for _, c := range m.clusters {
		sockets := []*anypb.Any{c.GetTransportSocket().GetTypedConfig()}
		for _, match := range c.GetTransportSocketMatches() {
			sockets = append(sockets, match.GetTransportSocket().GetTypedConfig())
		}
		for _, config := range sockets {
			context := &tlsv3.UpstreamTlsContext{}
			if !config.MessageIs(context) || config.UnmarshalTo(context) != nil {
				continue
			}
			for _, san := range sansOf(context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()) {
				add(san)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// eachName calls f with the certificate-name matcher of a principal and of each principal nested in it. For a principal
// without such a matcher, f gets nil.
func eachName(p *rbacv3.Principal, f func(*matcherv3.StringMatcher)) {
	for _, one := range slices.Concat(p.GetAndIds().GetIds(), p.GetOrIds().GetIds()) {
		eachName(one, f)
	}
	if not := p.GetNotId(); not != nil {
		eachName(not, f)
	}
	f(p.GetAuthenticated().GetPrincipalName())
}

// rules iterates over the rules of the RBAC filters of all listeners.
func (m *Messages) rules() iter.Seq[*rbacv3.RBAC] {
	return func(yield func(*rbacv3.RBAC) bool) {
		for _, l := range m.listeners {
			for _, chain := range l.GetFilterChains() {
				for _, f := range chain.GetFilters() {
					for _, config := range append(httpConfigs(f.GetTypedConfig()), f.GetTypedConfig()) {
						if rules := rulesIn(config); rules != nil && !yield(rules) {
							return
						}
					}
				}
			}
		}
	}
}

// httpConfigs returns the configurations of the HTTP filters of a connection manager; nil for other filters.
func httpConfigs(config *anypb.Any) (all []*anypb.Any) {
	m := &hcmv3.HttpConnectionManager{}
	if !config.MessageIs(m) || config.UnmarshalTo(m) != nil {
		return nil
	}
	for _, f := range m.GetHttpFilters() {
		all = append(all, f.GetTypedConfig())
	}
	return all
}

// rulesIn returns the rules of an RBAC filter; nil for other filters.
func rulesIn(config *anypb.Any) *rbacv3.RBAC {
	http, tcp := &httprbacv3.RBAC{}, &tcprbacv3.RBAC{}
	switch {
	case config.MessageIs(http) && config.UnmarshalTo(http) == nil:
		return http.GetRules()
	case config.MessageIs(tcp) && config.UnmarshalTo(tcp) == nil:
		return tcp.GetRules()
	}
	return nil
}
