package host

import (
	"slices"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// horizon returns the network of proxies with the given inputs (properties of a proxy), and the gateways to other
// networks. The Horizon decides which members (endpoints) of a cluster the proxies reach through gateways. If all
// members are reached directly, the Horizon is zero, so that proxies of all networks share the cluster's assignment. A
// proxy of an unknown network reaches all members directly. Gateways forward connections by SNI. A gRPC client sends no
// SNI, so it reaches no members behind gateways.
func (t *Table) horizon(members intern.List[model.Member], tls traffic.TLS, inputs view.Inputs) endpoint.Horizon {
	if inputs.Network == "" || t.in.Gateways.Len() == 0 {
		return endpoint.Horizon{}
	}
	h := endpoint.Horizon{Network: inputs.Network, Gateways: t.in.Gateways, TLS: tls}
	if inputs.Alone {
		h = endpoint.Horizon{Network: inputs.Network, Alone: true}
	}
	if t.form.Whole {
		h.TLS = traffic.Plaintext
	}
	if !slices.ContainsFunc(members.All(), func(m model.Member) bool { return h.Beyond(m.Endpoint) }) {
		return endpoint.Horizon{}
	}
	return h
}
