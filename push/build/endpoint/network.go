package endpoint

import (
	"math"
	"slices"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Gateway is an entry point of a network for traffic of other networks. It forwards TLS to the service in its SNI. It
// is comparable.
type Gateway struct {
	Network string
	Cluster string // of the gateway; empty: unknown
	Address string // an IP
	Port    uint32
}

// Horizon selects the members that a proxy reaches through gateways. They are the members of other networks that have
// gateways. With the zero Horizon the proxy reaches all members directly. It is comparable. Rules: istio,
// pilot/pkg/xds/endpoints/ep_filters.go.
type Horizon struct {
	Network  string               // of the proxy; empty: unknown
	Gateways intern.List[Gateway] // of all networks, sorted
	// TLS is the mode of the cluster's connections. Gateways forward only the mesh's mTLS, so members of other networks
	// that do not use it are unreachable.
	TLS traffic.TLS
	// Alone: members of other networks are left out, with or without gateways.
	Alone bool
}

// Beyond reports whether an endpoint is in another network, one that has gateways or whose members are left out.
func (h Horizon) Beyond(e *model.Endpoint) bool {
	if h.Network == "" || e.Network == "" || e.Network == h.Network {
		return false
	}
	if h.Alone {
		return true
	}
	for _, g := range h.Gateways.All() {
		if g.Network == e.Network {
			return true
		}
	}
	return false
}

// gatewaysOf returns the gateways to an endpoint: those of its network in its cluster, or else all of its network.
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

// scale returns the factor by which weights are multiplied. With it each weight can be divided equally among the
// gateways of its network. It is the least common multiple of the numbers of gateways of networks, and of clusters in
// networks.
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
			return math.MaxUint32 // the shares of gateways differ slightly then
		}
	}
	return out
}

// lcm returns the least common multiple of two numbers.
func lcm(a, b uint64) uint64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// target is an entry of an assignment: a member, or a gateway in the place of several members.
type target struct {
	model.Member
	weight  uint64
	mtls    bool
	gateway bool
}

// targets returns the entries of an assignment for members. The function plain reports the members that do not accept
// mTLS, whatever their labels state. Members beyond the horizon are replaced by their networks' gateways, one entry per
// gateway and locality, whose weight is the sum of its shares. Weights are scaled only in assignments with such
// members, so that other assignments do not change when gateways do.
func (h Horizon) targets(members []model.Member, plain func(model.Member) bool) (out []target) {
	type gatewayKey struct {
		locality string
		gateway  Gateway
	}
	entries := map[gatewayKey]int{}
	scale, scaled := h.scale(), false
	for _, m := range members {
		t := target{Member: m, weight: uint64(weight(m.Endpoint)), mtls: m.Endpoint.Mtls && !plain(m)}
		if !h.Beyond(m.Endpoint) {
			out = append(out, t)
			continue
		}
		if h.Alone || !h.usesMTLS(t) || m.Endpoint.Health == model.Health_HEALTH_NOT_READY { // a gateway has no health per member
			continue
		}
		scaled = true
		gateways := h.gatewaysOf(m.Endpoint)
		share := min(t.weight*scale, math.MaxUint32) / uint64(len(gateways))
		for _, g := range gateways {
			at := gatewayKey{m.Endpoint.Locality, g}
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

// usesMTLS reports whether connections to a member use the mesh's mTLS.
func (h Horizon) usesMTLS(t target) bool {
	switch h.TLS {
	case traffic.AutoAll, traffic.Mutual:
		return true
	case traffic.AutoEndpoints:
		return t.mtls
	case traffic.Plaintext, traffic.Originate, traffic.Closed:
	}
	return false
}

// dedupeGateways leaves each gateway in one group, the first by priority. Envoy uses an address only once
// (source/extensions/clusters/eds/eds.cc, all_new_hosts), and would lose the weight of the others. Within one priority
// the first entry has the sum of the weights. Groups without members are removed.
func dedupeGateways(groups []*group) []*group {
	type socketKey struct {
		address string
		port    uint32
	}
	type first struct {
		group *group
		index int
	}
	seen := map[socketKey]first{}
	for _, g := range groups {
		if g.excluded {
			continue
		}
		kept, into := g.members[:0], (*group)(nil)
		for _, m := range g.members {
			at := socketKey{m.Endpoint.Address, m.Port}
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
		if g.members = kept; len(kept) == 0 && into != nil && into.weight > 0 { // the setting distributes by locality
			into.weight += g.weight
		}
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return len(g.members) == 0 })
	compact(groups)
	return groups
}
