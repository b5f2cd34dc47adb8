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

// OutboundPort returns the port that receives redirected connections from the workload: proxyListenPort of the mesh
// configuration, or 15001 if that field is not positive.
func (in *Input) OutboundPort() uint32 {
	return uint32(cmp.Or(max(in.Mesh.Spec.GetProxyListenPort(), 0), 15001))
}

// InboundPort returns the port that receives redirected connections to the workload: proxyInboundListenPort of the mesh
// configuration, or 15006 if that field is not positive.
func (in *Input) InboundPort() uint32 {
	return uint32(cmp.Or(max(in.Mesh.Spec.GetProxyInboundListenPort(), 0), 15006))
}

// Common returns the part that the Specs of all listeners of one side have in common. The first two arguments are
// properties of the proxy. The result includes the patches that match the listener's name, port and side. Its other
// fields are zero.
func (in *Input) Common(caps xds.Caps, how xds.Listening, patches PatchSet, name string, port uint32,
	side networkingv1.EnvoyFilter_PatchContext) listener.Common {
	matches := func(p model.Patch) bool { return patch.ListenerMatches(p, side, name, port) }
	return listener.Common{Mesh: in.Meshes.Listener, Caps: caps, Listening: how, Patches: patches.Matching(matches)}
}

// RemovesListener reports whether one of the patches removes the listener with a name, port and side.
func (s PatchSet) RemovesListener(name string, port uint32, side networkingv1.EnvoyFilter_PatchContext) bool {
	return s.Any(func(p model.Patch) bool { return patch.RemovesListener(p, side, name, port) })
}

// Direct reports whether no traffic is redirected to the proxy. This holds if mode is view.None, or if the Sidecar has
// ingress and egress listeners and all of them have captureMode NONE. The Sidecar may be nil.
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
