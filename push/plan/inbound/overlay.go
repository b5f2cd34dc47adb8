package inbound

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Overlay returns markers that hide some outbound listeners from a proxy with the given IP addresses. If a headless
// service selects the proxy, the outbound side that the proxy shares with others has listeners at the proxy's own
// addresses. The markers hide these listeners, because an application reaches its own Pod without the proxy, and the
// inbound side needs these addresses. The result is nil if there are no addresses, or if no headless service with a
// port of a protocol other than HTTP selects the workload.
func (wl *Workload) Overlay(addresses intern.List[string]) *manifest.Manifest {
	var hidden []*xds.Resource
	for _, svc := range wl.services {
		if !svc.Spec.GetHeadless() {
			continue
		}
		for _, p := range svc.Spec.GetPorts() {
			if p.GetProtocol().IsHTTP() || input.PortOf(svc, p.GetNumber()) != p {
				continue
			}
			for _, a := range addresses.All() {
				hidden = append(hidden, manifest.Hidden(xds.Listener, xds.ListenerName(a, p.GetNumber())))
			}
		}
	}
	if len(hidden) == 0 {
		return nil
	}
	return manifest.Of(hidden...)
}
