package inbound

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Overlay hides what a proxy's scope has and the proxy itself should not: listeners for its own addresses, where a
// headless service selects it. An app reaches its own pod without the proxy, and the inbound listener has the address.
func (wl *Workload) Overlay(addresses intern.List[string]) *manifest.Manifest {
	var hidden []*xds.Resource
	for _, svc := range wl.services {
		if !svc.Spec.GetHeadless() {
			continue
		}
		for _, p := range svc.Spec.GetPorts() {
			if input.IsHTTP(p.GetProtocol()) || input.PortOf(svc, p.GetNumber()) != p {
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
