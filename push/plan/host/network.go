package host

import (
	"slices"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// horizon returns the network of proxies with the given inputs, and the gateways to other networks. By this Horizon, a
// cluster's assignment decides which members (endpoints) are reached through gateways. The Horizon is zero if all
// members are reached directly. Proxies of all networks then share the assignment. A proxy of an unknown network
// reaches all members directly. Gateways forward connections by SNI. A gRPC client sends no SNI, so it reaches no
// members behind gateways.
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
