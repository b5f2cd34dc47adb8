package model

import (
	"cmp"
	"slices"
	"strings"
)

// PortAt is the number of a service's port at one endpoint of this record: the endpoint's own for the port's name, else the record's and, of a record
// without ports, the target that the service states. The record's port is the one of that name or, byNumber, the one of the service port's number where the
// record states these. 0 at an endpoint that is a Unix socket; false where the endpoint does not have the port.
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
