package inbound

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// mode is how the proxy takes connections to one of the workload's ports; 0: to ports that no policy names. Without a certificate of the mesh, or
// a TLS inspector, it cannot end the mesh's mTLS: then all connections come as they are, and none where a policy demands mTLS.
func (wl *Workload) mode(port uint32) listener.MTLS {
	stated := wl.stated(port)
	switch able := wl.key.Caps.Has(xds.CapIdentity | xds.CapTLSInspector); {
	case stated == listener.Permissive && !able:
		return listener.Plain
	case stated == listener.Strict && !able:
		return listener.Refused
	}
	return stated
}

// stated is how PeerAuthentications have connections to a port taken: Plain, Permissive or Strict.
func (wl *Workload) stated(port uint32) listener.MTLS {
	switch input.FirstMode(wl.peers, port) {
	case model.MTLSDisable:
		return listener.Plain
	case model.MTLSStrict:
		return listener.Strict
	case model.MTLSPermissive, model.MTLSUnset:
	}
	return listener.Permissive
}

// unnamed are ports that no service names and a PeerAuthentication does.
func (wl *Workload) unnamed() (out []listener.InboundPort) {
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
