package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// never is the cleanup interval of inbound ORIGINAL_DST clusters. The only host of these clusters is the workload,
// which never disappears.
const never = 292 * 365 * 24 * time.Hour

// Build encodes the cluster. Patches that do not decode, or whose result Envoy would refuse, are left out. Build fails
// if Target is neither empty, "ip:port" nor "unix://path" with a path of 1 to 107 bytes. It also fails if the cluster
// without patches violates a constraint of Envoy's API, or if the cluster does not encode. The error names the cluster.
func (s Inbound) Build() (*xds.Resource, error) {
	r, _, err := s.build(nil)
	return r, err
}

// Problems returns a patch.Left for each patch that Build leaves out, and a model.Problem for each patch that states
// another name for the cluster. Build ignores the other name. The last element is the error of Build, if any. The
// result is nil if Build succeeds and applies all patches as stated. Problems builds the cluster.
func (s Inbound) Problems() []error {
	_, problems, err := s.build(nil)
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// build returns the resource, the problems without the error of Build, and the error of Build. t records patches that
// change the cluster.
func (s Inbound) build(t *patch.Trace) (*xds.Resource, []error, error) {
	name := xds.InboundCluster(s.Port)
	kind := clusterv3.Cluster_ORIGINAL_DST
	if s.Target != "" {
		kind = clusterv3.Cluster_STATIC
	}
	d := newBuilder(name, kind, s.Connection, s.Mesh)
	d.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	if err := s.setEndpoints(d); err != nil {
		return nil, nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	if s.Service != nil && !s.Service.Spec.External {
		d.setServiceMetadata(s.Host, s.Service)
		if pattern := s.Mesh.Spec.GetInboundClusterStatName(); pattern != "" {
			d.AltStatName = statName(pattern, s.Service, s.Host, "", s.servicePort(), s.Port) + statDelimiter
		}
	}
	switch {
	case s.HTTP2:
		d.useHTTP2()
	case s.Auto:
		d.useClientProtocol()
	}
	if s.HeaderCase {
		d.keepHeaderCase()
	}
	d.setConnectionPool(s.Pool, nil)
	d.setKeepalive(s.Connection.Keepalive)
	r, err := d.patchAndEncode(s.Patches.All(), t)
	return r, d.problems, err
}

// setEndpoints sets the target as the endpoint. Without a target the original destination is the endpoint. It also
// binds connections to a source address from which traffic is not redirected to the proxy. Connections to 127.0.0.1,
// ::1 and Unix sockets are never redirected and need no such address. The error means that Target is neither "ip:port"
// nor "unix://path".
func (s Inbound) setEndpoints(d *builder) error {
	if s.Target == "" {
		d.CleanupInterval = durationpb.New(never)
		d.bindSource(s.Families.Sources()...)
		return nil
	}
	target := endpoint.Address(s.Target, 0)
	if !strings.HasPrefix(s.Target, "unix://") || !endpoint.IsAddress(s.Target) {
		at, err := netip.ParseAddrPort(s.Target)
		if err != nil {
			return fmt.Errorf("target %q: want ip:port or unix://path", s.Target)
		}
		target = endpoint.Address(at.Addr().String(), uint32(at.Port()))
		switch {
		case at.Addr().Is6() && at.Addr() != netip.IPv6Loopback():
			d.bindSource(xds.IPv6Only.Sources()...)
		case at.Addr().Is4() && at.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}):
			d.bindSource(xds.IPv4Only.Sources()...)
		}
	}
	d.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: d.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: target},
		}}},
	}}}
	return nil
}

// bindSource sets the source addresses of connections, one for each IP family. There must be at least one.
func (d *builder) bindSource(sources ...string) {
	at := func(source string) *corev3.SocketAddress {
		return &corev3.SocketAddress{Address: source, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0}}
	}
	d.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: at(sources[0])}
	for _, other := range sources[1:] {
		extra := &corev3.ExtraSourceAddress{Address: at(other)}
		d.UpstreamBindConfig.ExtraSourceAddresses = append(d.UpstreamBindConfig.ExtraSourceAddresses, extra)
	}
}

// servicePort returns the first service port whose numeric target port is the workload's port, for names of statistics.
// It returns nil if the service has no such port.
func (s Inbound) servicePort() *model.ServicePort {
	for _, p := range s.Service.Spec.Ports {
		if p.TargetNumber == s.Port {
			return p
		}
	}
	return nil
}
