package envoy

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var targets intern.Table[listener.Target]

// Several contains the properties of a TCP chain that do not depend on its destinations. A single destination decides
// the statistics' prefix in place of StatPrefix. If the service of a single destination is known, it also decides the
// policy in place of Rules.
type Several struct {
	Port       uint32         // the port at which connections arrive; used for destinations without a port
	StatPrefix string         // the prefix of the chain's statistics
	Rules      host.Rules     // DestinationRules whose policy for the whole host applies to the chain
	Protocol   model.Protocol // the protocol of the port
	Names      []string       // the names that clients request by SNI, see Connection
}

// Connection returns the TCP chain to the destinations of a tcp or tls rule. The chain has no match conditions. The
// perspective (the hosts as certain proxies see them) determines the cluster of each destination. A destination without
// a cluster is kept under the name that the cluster would have. Envoy then closes the connections. A router also closes
// connections to a destination that is the router itself (host.Table.Returns). If there are several destinations, those
// with weight 0 or less are left out. If no destination remains, the chain closes its connections.
//
// A single destination decides the StatPrefix of the chain, and the policy if its service is known. A dynamic host is a
// wildcard whose names the proxy resolves. If the single destination is a dynamic host that does not cover all of
// several.Names (host.Table.Below), the chain leads to the cluster BlackHole.
func Connection(hosts *host.Table, perspective host.Perspective, destinations []*networkingv1.RouteDestination,
	several Several) listener.Chain {
	c := listener.Chain{StatPrefix: several.StatPrefix, Protocol: several.Protocol}
	rules, subset, port := several.Rules, "", several.Port
	var list []listener.Target
	var last host.Outbound
	for _, route := range destinations {
		d := route.GetDestination()
		last, _ = perspective.Hosts.ClusterFor(d.GetHost(), d.GetSubset(), d.GetPort().GetNumber(), several.Port)
		list = append(list, listener.Target{Cluster: last.String(), Weight: uint32(max(route.GetWeight(), 0))})
		if hosts.Returns(last.Host, last.Port) {
			list[len(list)-1].Cluster = xds.BlackHole
		}
	}
	if len(list) == 1 {
		list[0].Weight = 0
		c.StatPrefix = list[0].Cluster
		if h := last.Known; h != nil && h.Service != nil {
			rules, subset, port = h.Rules, destinations[0].GetDestination().GetSubset(), last.Port
			if host.Dynamic(h.Service) && slices.ContainsFunc(several.Names, func(name string) bool { return !hosts.Below(h, name) }) {
				list[0].Cluster = xds.BlackHole
			} else if host.Dynamic(h.Service) {
				c.Dynamic, c.DynamicPort = h.Name, last.Port
			}
		}
	}
	c.Rule, c.Policy = rules.Of(subset), traffic.Intern(hosts.Policy(rules, subset, port))
	list = slices.DeleteFunc(list, func(t listener.Target) bool { return len(list) > 1 && t.Weight == 0 })
	c.Targets = targets.List(list...)
	return c
}
