package front

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// TrafficSource names the objects that send traffic to a listener or to an inbound cluster. The Spec of the resource
// has only the addresses, ports and clusters that follow from these objects, so that services with equal traffic share
// it.
type TrafficSource struct {
	Host    string
	Service *model.Service
	Routes  intern.List[*model.VirtualService] // VirtualServices whose tcp or tls rules apply to the host, the oldest first
	Sidecar *model.Sidecar                     // the Sidecar with the ingress or egress listener; nil without a Sidecar
	Egress  int                                // number of the Sidecar's egress listener, from 1; 0 if it is not one of these
}
