package inbound

import (
	"fmt"
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/proxyless"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Explain returns the Spec (all inputs of the build) of a resource of the workload, followed by the resource's sources.
// An inbound listener has one front.TrafficSource for each service of the workload. If the workload's Sidecar has
// ingress listeners, each front.TrafficSource also names the Sidecar. A workload with such a Sidecar but without
// services has one front.TrafficSource, which names only the Sidecar. An inbound cluster has a front.TrafficSource only
// if there is such a Sidecar. If PeerAuthentications set the listener's mTLS modes, a front.ModeSource comes last.
// Explain returns nil if the workload has no such resource.
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
	if peers := wl.deciding(spec); len(peers) > 0 {
		out = append(out, front.ModeSource{Peers: places.List(peers...)})
	}
	return out
}

var places intern.Table[model.Place]

// deciding returns the fields of PeerAuthentications that set the mTLS modes of a listener's ports. Each field occurs
// once.
func (wl *Workload) deciding(spec any) (all []model.Place) {
	var ports []uint32
	switch spec := spec.(type) {
	case listener.VirtualInbound:
		for _, p := range spec.Ports.All() {
			ports = append(ports, p.Port)
		}
		ports = append(ports, 0)
	case listener.Ingress:
		ports = append(ports, spec.Inner.Port)
	case proxyless.Server:
		ports = append(ports, spec.Port)
	}
	for _, port := range ports {
		_, by, ofPort := input.FirstPeer(wl.peers, port)
		if by == nil {
			continue
		}
		at := model.Place{Key: by.Key, Field: "spec.mtls"}
		if ofPort {
			at.Field = fmt.Sprintf("spec.portLevelMtls[%d]", port)
		}
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}
