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
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// never is the cleanup interval of inbound ORIGINAL_DST clusters: their one host does not go away.
const never = 292 * 365 * 24 * time.Hour

// Build draws the cluster. The error: a target that is no address, or settings that Envoy would refuse.
func (s Inbound) Build() (*xds.Resource, error) {
	r, _, err := s.draw()
	return r, err
}

// Problems are the settings that the cluster is drawn without: each is a model.Problem, or the fault of the service or the Sidecar.
func (s Inbound) Problems() []error {
	_, problems, err := s.draw()
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

func (s Inbound) draw() (*xds.Resource, []error, error) {
	name := xds.InboundCluster(s.Port)
	kind := clusterv3.Cluster_ORIGINAL_DST
	if s.Target != "" {
		kind = clusterv3.Cluster_STATIC
	}
	d := newBuilder(name, kind, s.Connection, s.Mesh)
	d.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	if err := s.locate(d); err != nil {
		return nil, nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	if s.Service != nil && !s.Service.Spec.External {
		d.describe(s.Host, s.Service)
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
	d.pool(s.Pool, nil)
	d.keepalive(s.Connection.Keepalive)
	r, err := d.seal(s.Patches.All())
	return r, d.problems, err
}

// locate sends to the target, or to where the connection was going. The source address keeps the connection from being
// captured again; connections to 127.0.0.1 and to Unix sockets never are.
func (s Inbound) locate(d *builder) error {
	if s.Target == "" {
		d.CleanupInterval = durationpb.New(never)
		d.bind(s.Families.Sources()...)
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
			d.bind(xds.IPv6Only.Sources()...)
		case at.Addr().Is4() && at.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}):
			d.bind(xds.IPv4Only.Sources()...)
		}
	}
	d.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: d.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: target},
		}}},
	}}}
	return nil
}

// bind has connections come from an address of their own family: the first of these, or another one of them.
func (d *builder) bind(sources ...string) {
	at := func(source string) *corev3.SocketAddress {
		return &corev3.SocketAddress{Address: source, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0}}
	}
	d.UpstreamBindConfig = &corev3.BindConfig{SourceAddress: at(sources[0])}
	for _, other := range sources[1:] {
		d.UpstreamBindConfig.ExtraSourceAddresses = append(d.UpstreamBindConfig.ExtraSourceAddresses, &corev3.ExtraSourceAddress{Address: at(other)})
	}
}

// servicePort is the service's port behind the workload's, for stat names; nil where it is not known by number.
func (s Inbound) servicePort() *model.ServicePort {
	for _, p := range s.Service.Spec.Ports {
		if p.TargetNumber == s.Port {
			return p
		}
	}
	return nil
}
