package front

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// TrafficSource names the objects that define a part of the traffic of a listener or an inbound cluster. Explanations
// of a resource contain it after the Spec of the resource. The Spec only has the addresses, ports and clusters that
// follow from these objects, so that services with equal traffic share the Spec. TrafficSource is comparable.
type TrafficSource struct {
	Host    string                             // the host of the traffic; "" if only the Sidecar defines it
	Service *model.Service                     // the host's service that has the traffic's port; nil without a host
	Routes  intern.List[*model.VirtualService] // outbound: those whose tcp or tls rules apply, sorted by precedence
	Sidecar *model.Sidecar                     // the Sidecar with the ingress or egress listener; nil without such a listener
	Egress  int                                // the number of the Sidecar's egress listener, from 1; 0 for other listeners
}

// ModeSource names the PeerAuthentications, with their fields, that set the mTLS modes of the ports of an inbound
// listener. The Spec of the listener only has the modes. ModeSource is comparable.
type ModeSource struct{ Peers intern.List[model.Place] }
