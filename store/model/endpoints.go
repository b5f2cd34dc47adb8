package model

import (
	"cmp"
	"slices"
	"strings"
)

// PortAt returns the number of a service's port at one endpoint of this record. A record with ports must have the
// service's port: one that matches by name or, with byNumber, by the service port's number if the record states it. The
// endpoint's own number for the port's name takes precedence over the number in the record. Without ports in the record
// and a number of the endpoint, the result is the service's numeric target port, or else the service port's number. The
// number is 0 for a Unix socket. ok is false if the endpoint does not have the port.
func (x *EndpointsSpec) PortAt(e *Endpoint, port *ServicePort, byNumber bool) (number uint32, ok bool) {
	if strings.HasPrefix(e.GetAddress(), "unix://") {
		return 0, true
	}
	name, number := port.GetName(), cmp.Or(port.GetTargetNumber(), port.GetNumber())
	if all := x.GetPorts(); len(all) > 0 {
		i := slices.IndexFunc(all, func(p *EndpointPort) bool {
			if byNumber && p.GetService() != 0 {
				return p.GetService() == port.GetNumber()
			}
			return p.GetName() == port.GetName()
		})
		if i < 0 {
			return 0, false
		}
		name, number = all[i].GetName(), all[i].GetNumber()
	}
	if own, ok := e.GetPorts()[name]; ok {
		return own, true
	}
	return number, number != 0
}
