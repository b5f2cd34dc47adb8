package model

import "strings"

// PortAt is the number of a service's port at one endpoint of this record: the endpoint's own for the port's name, else the record's for the
// name and, of a record without ports, the target that the service states. 0 at an endpoint that is a Unix socket; false where the endpoint
// does not have the port.
func (x *EndpointsSpec) PortAt(e *Endpoint, port *ServicePort) (number uint32, ok bool) {
	if strings.HasPrefix(e.GetAddress(), "unix://") {
		return 0, true
	}
	if n, ok := e.GetPorts()[port.GetName()]; ok {
		return n, true
	}
	for _, p := range x.GetPorts() {
		if p.GetName() == port.GetName() {
			return p.GetNumber(), p.GetNumber() != 0
		}
	}
	if len(x.GetPorts()) > 0 {
		return 0, false
	}
	if port.GetTargetNumber() != 0 {
		return port.GetTargetNumber(), true
	}
	return port.GetNumber(), port.GetNumber() != 0
}
