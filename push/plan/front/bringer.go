package front

import (
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Bringer is what brings traffic to a listener, or to an inbound cluster. The Spec has the addresses, ports and clusters that came of it, so
// that services which bring the same share it, and not the objects.
type Bringer struct {
	Host    string
	Service *model.Service
	Routes  intern.List[*model.VirtualService] // whose tcp or tls rules the host has, the oldest first
	Sidecar *model.Sidecar                     // whose ingress or egress listeners these are; nil: none
	Egress  int                                // which of the Sidecar's egress listeners, from 1; 0: none of them
}
