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

// passthroughIdle is the idle timeout of HTTP connections to unknown destinations. The mesh's default connection pool
// may set another timeout.
const passthroughIdle = 5 * time.Minute

// unknown is an empty service, which stands for all unknown hosts.
var unknown = &model.Service{Spec: &model.ServiceSpec{}}

// Build encodes the cluster. Patches that do not decode, or whose result Envoy would refuse, are left out. Build fails
// if Name is not xds.BlackHole, xds.Passthrough, xds.InboundPassthrough or xds.AllowAnyDynamic. It also fails if the
// cluster without patches violates a constraint of Envoy's API, or if the cluster does not encode. The error names the
// cluster.
func (s Static) Build() (*xds.Resource, error) {
	r, _, err := s.build(nil)
	return r, err
}

// Problems returns a patch.Left for each patch that Build leaves out, and a model.Problem for each patch that states
// another name for the cluster. Build ignores the other name. The last element is the error of Build, if any. The
// result is nil if Build succeeds and applies all patches as stated. Problems builds the cluster.
func (s Static) Problems() []error {
	_, problems, err := s.build(nil)
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// build returns the resource, the problems without the error of Build, and the error of Build. t records patches that
// change the cluster.
func (s Static) build(t *patch.Trace) (*xds.Resource, []error, error) {
	var d *builder
	switch s.Name {
	case xds.BlackHole:
		d = newBuilder(s.Name, clusterv3.Cluster_STATIC, s.Connection, s.Mesh)
	case xds.Passthrough, xds.InboundPassthrough:
		d = s.passthroughBuilder(clusterv3.Cluster_ORIGINAL_DST)
		if s.Name == xds.InboundPassthrough {
			d.bindSource(s.Families.Sources()...)
		}
	case xds.AllowAnyDynamic:
		d = s.passthroughBuilder(clusterv3.Cluster_STATIC)
		Outbound{Service: unknown, TLS: s.TLS, Mesh: s.Mesh, Caps: s.Caps}.setTransportSocket(d, s.Policy.Get())
		if s.TLS != traffic.Closed {
			d.useDynamicForwardProxy(s.Unknown.Cache(s.Families))
		}
	default:
		return nil, nil, fmt.Errorf("cluster %s: not a static cluster", s.Name)
	}
	r, err := d.patchAndEncode(s.Patches.All(), t)
	return r, d.problems, err
}

// passthroughBuilder returns a builder for passed-through traffic. Its cluster uses the client's version of HTTP and
// the mesh's default connection pool.
func (s Static) passthroughBuilder(kind clusterv3.Cluster_DiscoveryType) *builder {
	d := newBuilder(s.Name, kind, s.Connection, s.Mesh)
	d.useClientProtocol()
	if s.HeaderCase {
		d.keepHeaderCase()
	}
	d.setConnectionPool(s.Mesh.Spec.GetDefaultTrafficPolicy().GetConnectionPool(), nil) // as in Istio 1.31
	d.setKeepalive(s.Connection.Keepalive)
	d.setIdleTimeout(passthroughIdle)
	return d
}

// setIdleTimeout sets the idle timeout of HTTP connections, unless a connection pool has set one.
func (d *builder) setIdleTimeout(after time.Duration) {
	options := d.httpOptions()
	if options.CommonHttpProtocolOptions == nil {
		options.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	if options.CommonHttpProtocolOptions.IdleTimeout == nil {
		options.CommonHttpProtocolOptions.IdleTimeout = durationpb.New(after)
	}
}

// Build encodes the cluster in the patch's value, under the name in that value. It fails if the operation or the value
// is missing, or if the value does not decode or violates a constraint of Envoy's API. The error then names the
// EnvoyFilter and the field. Build also fails if the cluster does not encode.
func (s Added) Build() (*xds.Resource, error) {
	if err := patch.Problem(s.Patch); err != nil {
		return nil, err
	}
	c := &clusterv3.Cluster{}
	if err := patch.Decode(s.Patch, c); err != nil {
		return nil, err
	}
	return encode(c.Name, c, referencesOf(c))
}

// Problems returns the error of Build as the only element, or nil if Build succeeds.
func (s Added) Problems() []error {
	if _, err := s.Build(); err != nil {
		return []error{err}
	}
	return nil
}
