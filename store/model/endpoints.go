package model

import (
	"cmp"
	"slices"
	"strings"
)

// PortAt returns the number of a service's port at one endpoint of this record. For a Unix socket it returns 0 and
// true. Otherwise ok is false if the endpoint does not have the port.
//
// If the record has ports, the first one that matches the service's port counts. A port of the record matches if the
// names are equal. If byNumber is true and the record's port states the number of a service port, the numbers are
// compared instead. The result is the first of these numbers that is stated:
//
//   - the endpoint's own number for the name of the port
//   - with ports in the record, the number of the record's port
//   - without ports in the record, the service's numeric target port
//   - without ports in the record, the number of the service port
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
