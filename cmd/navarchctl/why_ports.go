package main

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/walk"
)

// follow follows a request through the proxy. If a gateway's Service has the address of the request, or if nothing
// listens at the port of an address that the request does not state, follow translates the port of the Service to that
// of the Pod. The result arrived is the request as it arrives at the proxy. A translation is the first step.
func (s *subject) follow(direction walk.Direction, r walk.Request) (result walk.Result, arrived walk.Request) {
	if direction != walk.Inbound || len(s.Addresses) == 0 {
		s.address(direction, &r)
		return walk.Walk(s.held, direction, r), r
	}
	front := s.ports
	if r.Address == "" {
		s.address(direction, &r)
		if result = walk.Walk(s.held, direction, r); result.Outcome != walk.Unserved {
			return result, r
		}
	} else if front = s.portsAt(r.Address); len(front) == 0 {
		return walk.Walk(s.held, direction, r), r
	}
	at := slices.IndexFunc(front, func(p inspect.ServicePort) bool { return p.Port == r.Port })
	if at < 0 {
		if slices.Contains(s.Addresses, r.Address) {
			return result, r
		}
		text := fmt.Sprintf("%s, which has address %s, has no port %d", front[0].Service, r.Address, r.Port)
		return walk.Result{Steps: []walk.Step{{Text: text}}, Outcome: walk.Unserved}, r
	}
	r.Address, r.Port = s.Addresses[0], front[at].Pod
	result = walk.Walk(s.held, direction, r)
	text := fmt.Sprintf("port %d of %s is %d of the Pod", front[at].Port, front[at].Service, r.Port)
	result.Steps = slices.Insert(result.Steps, 0, walk.Step{Text: text})
	return result, r
}

// portsOf returns the ports of the workload that the port of a URL means: the port itself if it is one of all, else the
// target ports of the services in front of a gateway. If neither is known, it returns all.
func (s *subject) portsOf(port uint32, all []uint32) (meant []uint32) {
	if slices.Contains(all, port) {
		return []uint32{port}
	}
	for _, front := range s.ports {
		if front.Port == port && slices.Contains(all, front.Pod) && !slices.Contains(meant, front.Pod) {
			meant = append(meant, front.Pod)
		}
	}
	if meant == nil {
		return all
	}
	return meant
}

// portsAt returns the ports of the services with an address.
func (s *subject) portsAt(address string) (all []inspect.ServicePort) {
	for _, p := range s.ports {
		if slices.Contains(p.Addresses, address) {
			all = append(all, p)
		}
	}
	return all
}
