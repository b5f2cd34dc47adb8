package inbound

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// Overlay returns markers that hide resources of a proxy's scope from the proxy: the listeners at its own addresses, if
// a headless service selects it. The application reaches its own Pod without the proxy, and the inbound listener has
// the addresses. The result is nil if nothing is hidden.
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
