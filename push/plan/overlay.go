package plan

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
)

// overlayOf hides what a proxy's scope has and the proxy itself should not: listeners for its own addresses, where a
// headless service selects it. An app reaches its own pod without the proxy, and the inbound listener has the address.
func overlayOf(wl *workload, addresses intern.List[string]) *manifest.Manifest {
	var hidden []*xds.Resource
	for _, svc := range wl.services {
		if !svc.Spec.GetHeadless() {
			continue
		}
		for _, p := range svc.Spec.GetPorts() {
			if isHTTP(p.GetProtocol()) || portOf(svc, p.GetNumber()) != p {
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

// succeed keeps the old residue where the new one hides the same.
func succeed(old, now *manifest.Manifest) *manifest.Manifest {
	if old.Len() != now.Len() {
		return now
	}
	for r := range now.All() {
		if old.Get(r.Name) == nil {
			return now
		}
	}
	return old
}
