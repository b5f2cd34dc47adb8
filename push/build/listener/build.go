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

// mesh is the mesh configuration; nil where there is none, which its getters read as the zero values.
func (c Common) mesh() *meshv1.MeshConfig {
	if c.Mesh == nil {
		return nil
	}
	return c.Mesh.Spec
}

// detectionTimeout is how long listener filters may wait for the first bytes. Istio's default is 0: for ever.
func (c Common) detectionTimeout() *durationpb.Duration {
	if t := c.mesh().GetProtocolDetectionTimeout(); t != nil {
		return t
	}
	return durationpb.New(0)
}

// finish patches a listener, checks it and encodes it. A listener that violates a constraint of Envoy's API is an error
// here, because Envoy would refuse all listeners of the response with it (measured: LDS, PGV). The problems are the patches that it is drawn without.
func (c Common) finish(l *listenerv3.Listener, context networkingv1.EnvoyFilter_PatchContext) (*xds.Resource, []error, error) {
	name := l.Name
	c.setBuffer(l)
	var problems []error
	if c.Patches.Len() > 0 {
		l, problems = patch.Listener(l, context, c.Patches.All())
	}
	if len(l.FilterChains) == 0 && l.DefaultFilterChain == nil {
		// Envoy refuses a listener without chains; one that ends nowhere says the same.
		l.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{blackHole()}}}
	}
	if err := l.ValidateAll(); err != nil {
		return nil, problems, fmt.Errorf("listener %s: %w", name, err)
	}
	r, err := xds.Encode(xds.Listener, name, l, needsOf(l)...)
	return r, problems, err
}

// address is a TCP socket, or a Unix socket where bind is unix:// and a path. Unix sockets of Linux' abstract name space
// are unix://@name.
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

// also are the other addresses of a listener at this one (xds.Families).
func (c Common) also(bind string, port uint32) (out []*listenerv3.AdditionalAddress) {
	for _, other := range c.Families.Also(bind) {
		if addr, err := address(other, port); err == nil { // of a port that is wrong the first address says so
			out = append(out, &listenerv3.AdditionalAddress{Address: addr})
		}
	}
	return out
}

// Build draws a listener that an EnvoyFilter adds. The resource has the name that the patch gives it.
// An error, patch.Refused, names the patch whose listener Envoy would refuse.
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
	return xds.Encode(xds.Listener, l.Name, l, needsOf(l)...)
}
