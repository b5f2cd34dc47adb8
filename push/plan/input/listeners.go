package input

import (
	"cmp"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// OutboundPort is the port that redirected connections of the workload arrive at.
func (in *Input) OutboundPort() uint32 {
	return uint32(cmp.Or(max(in.Mesh.Spec.GetProxyListenPort(), 0), 15001))
}

// InboundPort is the port that redirected connections to the workload arrive at.
func (in *Input) InboundPort() uint32 {
	return uint32(cmp.Or(max(in.Mesh.Spec.GetProxyInboundListenPort(), 0), 15006))
}

// Common is what all listeners of a side have in common, with the patches that reach the one of this name and port.
func (in *Input) Common(caps xds.Caps, how xds.Listening, patches PatchSet, name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) listener.Common {
	return listener.Common{Mesh: in.Meshes.Listener, Caps: caps, Listening: how, Patches: patches.Matching(func(p model.Patch) bool {
		return patch.ListenerMatches(p, side, name, port)
	})}
}

// RemovesListener says whether one of the patches removes a listener.
func (s PatchSet) RemovesListener(name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) bool {
	return s.Any(func(p model.Patch) bool { return patch.RemovesListener(p, side, name, port) })
}

// Direct says whether nothing at all is redirected to the proxy: by its metadata, or because each ingress and egress
// listener of its Sidecar has captureMode NONE.
func Direct(sidecar *model.Sidecar, mode view.Mode) bool {
	if mode == view.None {
		return true
	}
	if sidecar == nil || len(sidecar.Spec.GetEgress()) == 0 || len(sidecar.Spec.GetIngress()) == 0 {
		return false
	}
	for _, l := range sidecar.Spec.GetEgress() {
		if l.GetCaptureMode() != networkingv1.CaptureMode_NONE {
			return false
		}
	}
	for _, l := range sidecar.Spec.GetIngress() {
		if l.GetCaptureMode() != networkingv1.CaptureMode_NONE {
			return false
		}
	}
	return true
}
