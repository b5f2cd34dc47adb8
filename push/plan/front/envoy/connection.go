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

// Several has the settings of a TCP chain with several destinations, of which none decides alone.
type Several struct {
	Port       uint32     // at which connections arrive: of destinations that state none
	StatPrefix string     // of the chain
	Rules      host.Rules // whose policy counts for the host or subset ""
	Protocol   model.Protocol
	Names      []string // that clients ask for by SNI; a router resolves those alone that the destination is for
}

// Connection is the TCP chain to the destinations of a tcp or tls rule, without matches. A single destination gives the
// chain its statistics and its policy.
func Connection(hosts *host.Table, as host.Perspective, to []*networkingv1.RouteDestination, several Several) listener.Chain {
	c := listener.Chain{StatPrefix: several.StatPrefix, Protocol: several.Protocol}
	rules, subset, port := several.Rules, "", several.Port
	var list []listener.Target
	var last host.Outbound
	for _, route := range to {
		d := route.GetDestination()
		last, _ = as.Hosts.ClusterFor(d.GetHost(), d.GetSubset(), d.GetPort().GetNumber(), several.Port)
		list = append(list, listener.Target{Cluster: last.String(), Weight: uint32(max(route.GetWeight(), 0))})
	}
	if len(list) == 1 {
		list[0].Weight = 0
		c.StatPrefix = list[0].Cluster
		if h := last.Known; h != nil && h.Service != nil {
			rules, subset, port = h.Rules, to[0].GetDestination().GetSubset(), last.Port
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
