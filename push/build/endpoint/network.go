package endpoint

import (
	"math"
	"slices"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Gateway is an entry point of a network for traffic of other networks. It forwards a TLS connection to the service
// that the connection's SNI names. Gateway is comparable.
type Gateway struct {
	Network string // network whose endpoints the gateway reaches
	Cluster string // Kubernetes cluster of the gateway; empty: unknown
	Address string // an IP
	Port    uint32 // port for connections of other networks
}

// Horizon decides which members a proxy reaches through gateways. If another network has gateways, the proxy reaches
// the members of that network through them. With the zero Horizon the proxy reaches all members directly. A member
// behind gateways is left out if its health is HEALTH_NOT_READY. The rules are Istio's
// (pilot/pkg/xds/endpoints/ep_filters.go). Horizon is comparable.
type Horizon struct {
	Network  string               // network of the proxy; empty: unknown
	Gateways intern.List[Gateway] // gateways of all networks, sorted
	// TLS is the mode of the cluster's connections. Gateways forward only the mesh's mTLS. So a member behind gateways
	// is left out if connections to that member do not use mTLS.
	TLS traffic.TLS
	// Alone leaves out all members of other networks, whether or not these networks have gateways. It applies if the
	// networks of the proxy and of the member are known.
	Alone bool
}

// Beyond reports whether the proxy does not reach an endpoint directly. It returns true if the endpoint is in another
// network, and that network has gateways or Alone is set. If the network of the proxy or of the endpoint is unknown, it
// returns false.
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

// gatewaysOf returns the gateways to an endpoint: the gateways of its network that are in its cluster, or else all
// gateways of its network.
func (h Horizon) gatewaysOf(e *model.Endpoint) (out []Gateway) {
	inCluster := false
	for _, g := range h.Gateways.All() {
		if g.Network != e.Network {
			continue
		}
		own := e.Cluster != "" && g.Cluster == e.Cluster
		if own && !inCluster {
			inCluster, out = true, nil
		}
		if own || !inCluster {
			out = append(out, g)
		}
	}
	return out
}

// scale returns a factor for weights, by which every weight becomes divisible by the number of gateways of a network.
// The factor is the least common multiple of the numbers of gateways per network, and per cluster in a network. The
// factor is at most 4294967295.
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
			return math.MaxUint32 // the shares of gateways may then differ slightly
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

// target is an endpoint of an assignment: a member, or a gateway that replaces several members.
type target struct {
	model.Member
	weight  uint64
	mtls    bool
	gateway bool
}

// targets returns the endpoints of an assignment for members. plain reports whether a member accepts no mTLS, whatever
// the member's labels state. A member for which Beyond returns true is replaced by gateways, or left out as Horizon
// states. There is one target for each gateway and locality. Its weight is the sum of the gateway's shares of the
// members' weights. Weights are scaled only if a gateway replaces a member, so that other assignments do not change
// with the number of gateways.
func (h Horizon) targets(members []model.Member, plain func(model.Member) bool, pace *pacer) (out []target) {
	type gatewayKey struct {
		locality string
		gateway  Gateway
	}
	entries := map[gatewayKey]int{}
	scale, scaled := h.scale(), false
	for _, m := range members {
		pace.step()
		t := target{Member: m, weight: uint64(weight(m.Endpoint)), mtls: m.Endpoint.Mtls && !plain(m)}
		if !h.Beyond(m.Endpoint) {
			out = append(out, t)
			continue
		}
		if h.Alone || !h.usesMTLS(t) || m.Endpoint.Health == model.Health_HEALTH_NOT_READY { // a gateway's health cannot express a member's
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

// dedupeGateways removes repeated targets of a gateway, and keeps the target in the first group by priority. Envoy
// uses an address only once (source/extensions/clusters/eds/eds.cc, all_new_hosts). The kept target receives the
// weights of removed targets of the same priority. Groups without members are removed.
func dedupeGateways(groups []*group, pace *pacer) []*group {
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
			pace.step()
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
		if g.members = kept; len(kept) == 0 && into != nil && into.weight > 0 { // weights of localities are set by distribute
			into.weight += g.weight
		}
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return len(g.members) == 0 })
	return compact(groups, pace)
}
