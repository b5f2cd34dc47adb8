package host

import (
	"slices"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// horizon is which members of a cluster proxies with certain inputs reach through gateways; the zero Horizon where there is none of
// them, so that proxies of all networks share what is the same for them. A proxy of which no network is known reaches all
// directly. gRPC's own client names no server (SNI) to a gateway, which would not know where to: it reaches none beyond.
func (t *Table) horizon(members intern.List[model.Member], tls traffic.TLS, inputs view.Inputs) endpoint.Horizon {
	if inputs.Network == "" || t.in.Gateways.Len() == 0 {
		return endpoint.Horizon{}
	}
	h := endpoint.Horizon{Network: inputs.Network, Gateways: t.in.Gateways, TLS: tls}
	if t.form.Whole {
		h.TLS = traffic.Plaintext
	}
	if !slices.ContainsFunc(members.All(), func(m model.Member) bool { return h.Beyond(m.Endpoint) }) {
		return endpoint.Horizon{}
	}
	return h
}
