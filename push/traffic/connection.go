package traffic

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// defaultConnectTimeout is Istio's default. It applies if neither a connection pool nor the mesh has a valid timeout.
const defaultConnectTimeout = 10 * time.Second

// Connection holds the settings for opening connections of one cluster. It is comparable.
type Connection struct {
	Timeout   time.Duration // time limit for opening a connection; more than zero
	Keepalive Keepalive
}

// String returns the settings as text, for messages.
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

// Keepalive holds the settings of TCP keep-alive. The zero Keepalive means that keep-alive is off.
type Keepalive struct {
	On             bool
	Probes         uint32 // number of unanswered probes after which the connection is closed; 0: the kernel's default
	Time, Interval uint32 // whole seconds before the first probe, and between probes; 0: the kernel's default
}

// ConnectionOf returns the settings of a connection pool and the mesh. The pool may be nil, but the mesh must not be
// nil. Each value comes from the pool, or else from the mesh, or else it is the default. The default timeout is ten
// seconds. Keep-alive is on if the pool or the mesh has tcpKeepalive. Durations that are invalid or not positive are
// ignored, since Envoy would refuse them. Times of keep-alive are rounded down to whole seconds, but not below one
// second (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#MeshConfig, connectTimeout, tcpKeepalive).
func ConnectionOf(pool *networkingv1.ConnectionPoolSettings, mesh *model.Mesh) Connection {
	c := Connection{Timeout: defaultConnectTimeout}
	for _, t := range []*durationpb.Duration{mesh.Spec.GetConnectTimeout(), pool.GetTcp().GetConnectTimeout()} {
		if Positive(t) {
			c.Timeout = t.AsDuration()
		}
	}
	c.Keepalive = c.Keepalive.overriddenBy(mesh.Spec.GetTcpKeepalive()).overriddenBy(pool.GetTcp().GetTcpKeepalive())
	return c
}

// PassthroughConnection returns the settings for unknown destinations, from the mesh and its default connection pool.
func PassthroughConnection(mesh *model.Mesh) Connection {
	return ConnectionOf(mesh.Spec.GetDefaultTrafficPolicy().GetConnectionPool(), mesh)
}

// overriddenBy returns a copy of k in which positive values in over replace the values of k. If over is not nil, the
// copy has keep-alive on.
func (k Keepalive) overriddenBy(over *networkingv1.ConnectionPoolSettings_TCPSettings_TcpKeepalive) Keepalive {
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

// Upgrades reports whether HTTP/1.1 requests to a port with the given protocol are forwarded as HTTP/2. The pool may be
// nil, but the mesh must not be nil. If the pool sets useClientProtocol, the result is false. The h2UpgradePolicy of
// the pool applies to all protocols. If the pool does not set h2UpgradePolicy, the mesh's h2UpgradePolicy applies. The
// mesh's policy affects only the protocol HTTP.
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

// Positive reports whether a duration is set, valid, and more than zero.
func Positive(t *durationpb.Duration) bool {
	return t != nil && t.IsValid() && (t.Seconds > 0 || t.Seconds == 0 && t.Nanos > 0)
}

// seconds returns the whole seconds of a positive duration, rounded down. The result is at least 1, and at most the
// largest uint32.
func seconds(t *durationpb.Duration) uint32 { return uint32(min(max(1, t.Seconds), 1<<32-1)) }
