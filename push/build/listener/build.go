package listener

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
)

const (
	inbound  = networkingv1.EnvoyFilter_SIDECAR_INBOUND
	outbound = networkingv1.EnvoyFilter_SIDECAR_OUTBOUND

	unixPrefix = "unix://"
)

// mesh returns the mesh configuration, or nil if Mesh is nil. The getters of a nil MeshConfig return zero values.
func (c Common) mesh() *meshv1.MeshConfig {
	if c.Mesh == nil {
		return nil
	}
	return c.Mesh.Spec
}

// detectionTimeout returns the time for which listener filters wait for the first bytes. 0, Istio's default, means no
// limit.
func (c Common) detectionTimeout() *durationpb.Duration {
	if t := c.mesh().GetProtocolDetectionTimeout(); t != nil {
		return t
	}
	return durationpb.New(0)
}

// patchAndEncode applies the patches to a listener, validates the result and encodes it. The second result has an error
// for each patch that is left out, and for each patch that states another name. The error names the constraint of
// Envoy's API that the listener violates. If a response contained such a listener, Envoy would refuse all listeners of
// the response (measured).
func (c Common) patchAndEncode(
	l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext,
) (*xds.Resource, []error, error) {
	name := l.Name
	c.setBuffer(l)
	var problems []error
	if c.Patches.Len() > 0 {
		l, problems = c.trace.Listener(l, context, c.Patches.All(), c.pieces.pauseOf())
	}
	if len(l.FilterChains) == 0 && l.DefaultFilterChain == nil {
		// Envoy refuses a listener without chains. A chain to the black hole has the same effect: connections are
		// closed.
		l.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{blackHole()}}}
	}
	if c.pieces != nil {
		r, err := c.pieces.encode(l)
		return r, problems, err
	}
	if err := l.ValidateAll(); err != nil {
		return nil, problems, fmt.Errorf("listener %s: %w", name, err)
	}
	r, err := xds.Encode(xds.Listener, name, l, referencesOf(l)...)
	return r, problems, err
}

// address returns the address of a listener. The argument bind is an IP address or "unix://path". The argument port is
// a TCP port from 1 to 65535. It is ignored for a Unix socket. "unix://@name" is a socket in the abstract namespace of
// Linux. The error names bind or port.
func address(bind string, port uint32) (*corev3.Address, error) {
	if path, ok := strings.CutPrefix(bind, unixPrefix); ok {
		if path == "" {
			return nil, fmt.Errorf("bind %q: path is missing", bind)
		}
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}, nil
	}
	if _, err := netip.ParseAddr(bind); err != nil {
		return nil, fmt.Errorf("bind %q: neither an IP address nor unix:// and a path", bind)
	}
	if port == 0 || port > 65535 {
		return nil, fmt.Errorf("port %d: want 1 to 65535", port)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       bind,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}, nil
}

// additionalAddresses returns further addresses for a listener with the address bind. If bind is a wildcard or loopback
// address, and the proxy has both IP families, the result has the equivalent IPv6 address.
func (c Common) additionalAddresses(bind string, port uint32) (out []*listenerv3.AdditionalAddress) {
	for _, other := range c.Families.Also(bind) {
		if addr, err := address(other, port); err == nil { // the first address has already reported an invalid port
			out = append(out, &listenerv3.AdditionalAddress{Address: addr})
		}
	}
	return out
}

// Build encodes the listener in the patch's value. The resource has the name of that listener. It fails if the value
// does not decode, has no name, or would be refused by Envoy. The error names the EnvoyFilter and the field of the
// patch.
func (a Added) Build() (*xds.Resource, error) {
	l := &listenerv3.Listener{}
	if err := patch.Decode(a.Patch, l); err != nil {
		return nil, err
	}
	err := patch.Check(l)
	if err == nil && l.Name == "" {
		err = errors.New("name is missing")
	}
	if err != nil {
		return nil, patch.Refused(a.Patch, err)
	}
	return xds.Encode(xds.Listener, l.Name, l, referencesOf(l)...)
}
