package cluster

import (
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// passthroughIdle ends HTTP connections to unknown destinations that nobody uses, where the mesh's default connection pool says no other time.
const passthroughIdle = 5 * time.Minute

// unknown stands for the service of unknown hosts: nothing is known of it.
var unknown = &model.Service{Spec: &model.ServiceSpec{}}

// Build draws the cluster. The error: the name is none of the four.
func (s Static) Build() (*xds.Resource, error) {
	r, _, err := s.draw()
	return r, err
}

// Problems are the patches that do not apply.
func (s Static) Problems() []error {
	_, problems, err := s.draw()
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

func (s Static) draw() (*xds.Resource, []error, error) {
	var d *builder
	switch s.Name {
	case xds.BlackHole:
		d = newBuilder(s.Name, clusterv3.Cluster_STATIC, s.Connection, s.Mesh)
	case xds.Passthrough, xds.InboundPassthrough:
		d = s.passing(clusterv3.Cluster_ORIGINAL_DST)
		if s.Name == xds.InboundPassthrough {
			d.bind(s.Families.Sources()...)
		}
	case xds.AllowAnyDynamic:
		d = s.passing(clusterv3.Cluster_STATIC)
		Outbound{Service: unknown, TLS: s.TLS, Mesh: s.Mesh, Caps: s.Caps}.secure(d, s.Policy.Get())
		if s.TLS != traffic.Closed {
			d.forward(s.Unknown.Cache(s.Families))
		}
	default:
		return nil, nil, fmt.Errorf("cluster %s: is no static cluster", s.Name)
	}
	r, err := d.seal(s.Patches.All())
	return r, d.problems, err
}

// passing is a cluster of what passes through the proxy.
func (s Static) passing(kind clusterv3.Cluster_DiscoveryType) *builder {
	d := newBuilder(s.Name, kind, s.Connection, s.Mesh)
	d.useClientProtocol()
	if s.HeaderCase {
		d.keepHeaderCase()
	}
	d.pool(s.Mesh.Spec.GetDefaultTrafficPolicy().GetConnectionPool(), nil) // Istio 1.31: https://github.com/istio/istio/pull/60664
	d.keepalive(s.Connection.Keepalive)
	d.idle(passthroughIdle)
	return d
}

// idle ends HTTP connections that nobody uses after that time, where no connection pool says another.
func (d *builder) idle(after time.Duration) {
	options := d.httpOptions()
	if options.CommonHttpProtocolOptions == nil {
		options.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	if options.CommonHttpProtocolOptions.IdleTimeout == nil {
		options.CommonHttpProtocolOptions.IdleTimeout = durationpb.New(after)
	}
}

// Build draws the cluster that the patch adds. The error names the EnvoyFilter and what is wrong with the value.
func (s Added) Build() (*xds.Resource, error) {
	if err := patch.Problem(s.Patch); err != nil {
		return nil, err
	}
	c := &clusterv3.Cluster{}
	if err := patch.Decode(s.Patch, c); err != nil {
		return nil, err
	}
	return encode(c.Name, c, needsOf(c))
}

// Problems is what Build refuses the patch for.
func (s Added) Problems() []error {
	if _, err := s.Build(); err != nil {
		return []error{err}
	}
	return nil
}
