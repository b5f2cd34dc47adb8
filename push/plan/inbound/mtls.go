package inbound

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// mode returns the mTLS mode of one of the workload's ports. Port 0 stands for all ports that no policy names. A proxy
// without a certificate of the mesh, or without a TLS inspector, cannot terminate the mesh's mTLS. Such a proxy accepts
// all connections as plaintext, or refuses all connections if a policy requires mTLS.
func (wl *Workload) mode(port uint32) listener.MTLS {
	stated := wl.policyMode(port)
	switch able := wl.key.Caps.Has(xds.CapIdentity | xds.CapTLSInspector); {
	case stated == listener.Permissive && !able:
		return listener.Plain
	case stated == listener.Strict && !able:
		return listener.Refused
	}
	return stated
}

// policyMode returns the mode of a port by PeerAuthentications: Plain, Permissive or Strict.
func (wl *Workload) policyMode(port uint32) listener.MTLS {
	switch input.FirstMode(wl.peers, port) {
	case model.MTLSDisable:
		return listener.Plain
	case model.MTLSStrict:
		return listener.Strict
	case model.MTLSPermissive, model.MTLSUnset:
	}
	return listener.Permissive
}

// portsOfPolicies returns the ports that PeerAuthentications name, sorted. The listener uses them for connections to
// ports without a service.
func (wl *Workload) portsOfPolicies() (out []listener.InboundPort) {
	named := map[uint32]bool{}
	for _, p := range wl.peers {
		_, ports := model.PeerModes(p)
		for number := range ports {
			named[number] = true
		}
	}
	for _, number := range slices.Sorted(maps.Keys(named)) {
		if number > 0 && number < 65536 {
			out = append(out, listener.InboundPort{Port: number, Protocol: model.Protocol_PROTOCOL_AUTO, Cluster: xds.InboundPassthrough,
				ServicePort: number, MTLS: wl.mode(number)})
		}
	}
	return out
}
