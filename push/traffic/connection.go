package traffic

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// defaultConnectTimeout holds where neither a connection pool nor the mesh has one that Envoy would take: Istio's own default.
const defaultConnectTimeout = 10 * time.Second

// Connection is how connections of one cluster are made: what its connection pool says, over the mesh. Comparable.
type Connection struct {
	Timeout   time.Duration // of making one; more than zero
	Keepalive Keepalive
}

// String says it for people.
func (c Connection) String() string {
	text := fmt.Sprintf("timeout %v", c.Timeout)
	k := c.Keepalive
	if !k.On {
		return text
	}
	text += ", TCP keep-alive"
	for _, v := range []struct {
		what string
		n    uint32
	}{{"probes", k.Probes}, {"time", k.Time}, {"interval", k.Interval}} {
		if v.n > 0 {
			text += fmt.Sprintf(" %s %d", v.what, v.n)
		}
	}
	return text
}

// Keepalive is TCP's. The zero Keepalive is off.
type Keepalive struct {
	On             bool
	Probes         uint32 // unanswered ones that end a connection; 0: as the kernel has it
	Time, Interval uint32 // before the first probe, and between probes, in seconds; 0: as the kernel has it
}

// ConnectionOf decides it, given the connection pool that holds (nil: none). Values that Envoy would refuse count as not said. Each value of keep-alive
// is the pool's, else the mesh's (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig, connectTimeout, tcpKeepalive).
func ConnectionOf(pool *networkingv1.ConnectionPoolSettings, mesh *model.Mesh) Connection {
	c := Connection{Timeout: defaultConnectTimeout}
	for _, t := range []*durationpb.Duration{mesh.Spec.GetConnectTimeout(), pool.GetTcp().GetConnectTimeout()} {
		if Positive(t) {
			c.Timeout = t.AsDuration()
		}
	}
	for _, k := range []*networkingv1.ConnectionPoolSettings_TCPSettings_TcpKeepalive{mesh.Spec.GetTcpKeepalive(), pool.GetTcp().GetTcpKeepalive()} {
		c.Keepalive = c.Keepalive.under(k)
	}
	return c
}

// PassthroughConnection is how connections to what the mesh does not know are made: by its default connection pool.
func PassthroughConnection(mesh *model.Mesh) Connection {
	return ConnectionOf(mesh.Spec.GetDefaultTrafficPolicy().GetConnectionPool(), mesh)
}

// under is k with the values that `over` says in their place.
func (k Keepalive) under(over *networkingv1.ConnectionPoolSettings_TCPSettings_TcpKeepalive) Keepalive {
	if over == nil {
		return k
	}
	k.On = true
	if n := over.GetProbes(); n > 0 {
		k.Probes = n
	}
	if t := over.GetTime(); Positive(t) {
		k.Time = seconds(t)
	}
	if t := over.GetInterval(); Positive(t) {
		k.Interval = seconds(t)
	}
	return k
}

// Upgrades says whether HTTP/1.1 to a port of that protocol is sent on as HTTP/2: what the connection pool that holds says (nil: none), else the mesh
// (h2UpgradePolicy), and that for HTTP ports alone.
func Upgrades(pool *networkingv1.ConnectionPoolSettings, mesh *model.Mesh, protocol model.Protocol) bool {
	if pool.GetHttp().GetUseClientProtocol() {
		return false
	}
	switch pool.GetHttp().GetH2UpgradePolicy() {
	case networkingv1.ConnectionPoolSettings_HTTPSettings_UPGRADE:
		return true
	case networkingv1.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE:
		return false
	}
	return protocol == model.Protocol_PROTOCOL_HTTP && mesh.Spec.GetH2UpgradePolicy() == meshv1.MeshConfig_UPGRADE
}

// Positive says whether a duration is one that Envoy takes where it wants more than zero.
func Positive(t *durationpb.Duration) bool {
	return t != nil && t.IsValid() && (t.Seconds > 0 || t.Seconds == 0 && t.Nanos > 0)
}

// seconds is a duration that is more than zero in whole seconds, at least one.
func seconds(t *durationpb.Duration) uint32 { return uint32(min(max(1, t.Seconds), 1<<32-1)) }
