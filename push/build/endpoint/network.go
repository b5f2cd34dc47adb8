package endpoint

import (
	"math"
	"slices"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Gateway is where a network is entered from others: it passes TLS through, to what its SNI names. Comparable.
type Gateway struct {
	Network string
	Cluster string // that it is in; empty: nobody says
	Address string // an IP
	Port    uint32
}

// Horizon says which members a proxy reaches through the gateways of their networks: those of other networks that have gateways. The
// zero Horizon: it reaches all of them directly. Comparable. Rules: istio, pilot/pkg/xds/endpoints/ep_filters.go.
type Horizon struct {
	Network  string               // the proxy's
	Gateways intern.List[Gateway] // of all networks, sorted
	// TLS is how the cluster's connections are secured: gateways pass on nothing but the mesh's mTLS, and members of other networks
	// that are spoken to without it are reached by nobody.
	TLS traffic.TLS
}

// Beyond says whether an endpoint is of another network, one that has gateways.
func (h Horizon) Beyond(e *model.Endpoint) bool {
	if h.Network == "" || e.Network == "" || e.Network == h.Network {
		return false
	}
	for _, g := range h.Gateways.All() {
		if g.Network == e.Network {
			return true
		}
	}
	return false
}

// gatewaysOf are the gateways that lead to an endpoint: those of its network in its cluster, else all of its network.
func (h Horizon) gatewaysOf(e *model.Endpoint) (out []Gateway) {
	near := false
	for _, g := range h.Gateways.All() {
		if g.Network != e.Network {
			continue
		}
		own := e.Cluster != "" && g.Cluster == e.Cluster
		if own && !near {
			near, out = true, nil
		}
		if own || !near {
			out = append(out, g)
		}
	}
	return out
}

// scale is what weights are multiplied with, so that each can be divided among the gateways of its network: the least common multiple of
// how many gateways the networks have, and the clusters in them.
func (h Horizon) scale() uint64 {
	type where struct{ network, cluster string }
	count := map[where]uint64{}
	for _, g := range h.Gateways.All() {
		count[where{g.Network, "\x00"}]++
		count[where{g.Network, g.Cluster}]++
	}
	out := uint64(1)
	for _, n := range count {
		if out = lcm(out, n); out > math.MaxUint32 {
			return math.MaxUint32 // the shares of gateways are not quite equal any more
		}
	}
	return out
}

func lcm(a, b uint64) uint64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// target is what stands in an assignment: a member, or a gateway in the place of some.
type target struct {
	model.Member
	weight  uint64
	mtls    bool
	gateway bool
}

// targets are what a proxy is given for members, some of which take no mTLS whatever their labels say. Members beyond the horizon become
// their networks' gateways, one for each locality: weights are scaled where there are any, and those of a gateway add up. That
// nothing is scaled in other assignments makes no difference to them, and they stay as they are when gateways come and go.
func (h Horizon) targets(members []model.Member, plain func(model.Member) bool) (out []target) {
	type entry struct {
		locality string
		gateway  Gateway
	}
	entries := map[entry]int{}
	scale, scaled := h.scale(), false
	for _, m := range members {
		t := target{Member: m, weight: uint64(weight(m.Endpoint)), mtls: m.Endpoint.Mtls && !plain(m)}
		if !h.Beyond(m.Endpoint) {
			out = append(out, t)
			continue
		}
		if !h.secures(t) || m.Endpoint.Health == model.Health_HEALTH_NOT_READY { // nobody can be told of it there
			continue
		}
		scaled = true
		gateways := h.gatewaysOf(m.Endpoint)
		share := min(t.weight*scale, math.MaxUint32) / uint64(len(gateways))
		for _, g := range gateways {
			at := entry{m.Endpoint.Locality, g}
			i, known := entries[at]
			if !known {
				i = len(out)
				entries[at] = i
				out = append(out, target{gateway: true, mtls: true, Member: model.Member{Port: g.Port,
					Endpoint: &model.Endpoint{Address: g.Address, Network: g.Network, Cluster: g.Cluster, Locality: m.Endpoint.Locality}}})
			}
			out[i].weight += share
		}
	}
	for i := range out {
		if scaled && !out[i].gateway {
			out[i].weight = min(out[i].weight*scale, math.MaxUint32)
		}
		out[i].weight = max(1, out[i].weight)
	}
	return out
}

// secures says whether a member is spoken to by the mesh's mTLS.
func (h Horizon) secures(t target) bool {
	switch h.TLS {
	case traffic.AutoAll, traffic.Mutual:
		return true
	case traffic.AutoEndpoints:
		return t.mtls
	case traffic.Plaintext, traffic.Originate, traffic.Closed:
	}
	return false
}

// once leaves each gateway in one of the groups, which are in order of their priorities: Envoy uses an address once, wherever it stands
// (source/extensions/clusters/eds/eds.cc, all_new_hosts), and would forget what it leads to in other localities. Of one priority the
// first has the weight of all. Groups of which nothing is left are not in the answer.
func once(groups []*group) []*group {
	type place struct {
		address string
		port    uint32
	}
	type first struct {
		group *group
		index int
	}
	seen := map[place]first{}
	for _, g := range groups {
		if g.left {
			continue
		}
		kept, into := g.members[:0], (*group)(nil)
		for _, m := range g.members {
			at := place{m.Endpoint.Address, m.Port}
			f, again := seen[at]
			switch {
			case !m.gateway:
			case !again:
				seen[at] = first{g, len(kept)}
			default:
				if f.group.priority == g.priority {
					f.group.members[f.index].weight += m.weight
					into = f.group
				}
				continue
			}
			kept = append(kept, m)
		}
		if g.members = kept; len(kept) == 0 && into != nil && into.weight > 0 { // the setting weighs localities
			into.weight += g.weight
		}
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return len(g.members) == 0 })
	compact(groups)
	return groups
}
