package front

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// TrafficSource names the objects that define a part of the traffic of a listener or an inbound cluster. An explanation
// of a resource has the TrafficSource after the Spec (the inputs of the resource). The Spec has only the addresses,
// ports and clusters that follow from the objects. So services with equal traffic share a Spec. TrafficSource is
// comparable.
type TrafficSource struct {
	Host    string                             // the host of the traffic; "" if only the Sidecar defines it
	Service *model.Service                     // the host's service that has the traffic's port; nil without a host
	Routes  intern.List[*model.VirtualService] // VirtualServices whose tcp or tls rules apply, by precedence; only outbound
	Sidecar *model.Sidecar                     // the Sidecar with the ingress or egress listener; nil without such a listener
	Egress  int                                // the number of the Sidecar's egress listener, from 1; 0 for other listeners
}

// ModeSource names the fields of PeerAuthentications that set the mTLS modes of the ports of an inbound listener. The
// Spec of the listener has only the modes. ModeSource is comparable.
type ModeSource struct{ Peers intern.List[model.Place] }
