package inbound

import (
	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/proxyless"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Explain returns the Spec (all inputs of the build) of a resource of the workload. For listeners, and for clusters of
// a Sidecar's ingress listeners, front.TrafficSource values follow, which name the services and the Sidecar of the
// resource. It returns nil if the workload has no such resource.
func (wl *Workload) Explain(of xds.Ref) []any {
	spec := wl.Spec(of)
	if spec == nil {
		return nil
	}
	out := []any{spec}
	var ingress *model.Sidecar
	if wl.sidecar != nil && len(wl.sidecar.Spec.GetIngress()) > 0 {
		ingress = wl.sidecar
	}
	switch spec.(type) {
	case listener.VirtualInbound, listener.Ingress, proxyless.Server:
	case cluster.Inbound:
		if ingress != nil {
			out = append(out, front.TrafficSource{Sidecar: ingress})
		}
		return out
	default:
		return out
	}
	for _, svc := range wl.services {
		out = append(out, front.TrafficSource{Host: svc.Spec.GetHosts()[0], Service: svc, Sidecar: ingress})
	}
	if len(wl.services) == 0 && ingress != nil {
		out = append(out, front.TrafficSource{Sidecar: ingress})
	}
	return out
}
