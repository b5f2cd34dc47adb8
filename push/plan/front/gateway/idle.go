package gateway

import (
	"fmt"

	"navarch.io/navarch/push/gateways"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/problem"
)

// connectOrReport adds the chain of a server whose connections Envoy forwards as TCP (addTCP), or reports that there is
// no rule for it.
func (c *chaining) connectOrReport(server gateways.Server) {
	if !c.addTCP(server) {
		*c.found = append(*c.found, c.idle(server, "tcp"))
	}
}

// idle returns the problem of a server that has no filter chain, because no rule of a VirtualService leads anywhere
// from it. The parameter rules has the kinds of rules that the server reads.
func (c *chaining) idle(server gateways.Server, rules string) input.Problem {
	return input.Warning(server.Gateway.Key, problem.NoEffect, fmt.Sprintf("spec.servers[%d]", server.Index),
		fmt.Sprintf("no VirtualService that names the Gateway has a %s rule for the hosts and port %d of this server: gateway workloads in "+
			"namespace %s close its connections, or do not listen", rules, server.Spec().GetPort().GetNumber(), c.Key.Namespace))
}
