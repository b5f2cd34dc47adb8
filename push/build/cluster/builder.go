package cluster

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// httpOptions is the key of HttpProtocolOptions in typed_extension_protocol_options.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// statDelimiter ends the names of statistics. The tag expressions of Istio's bootstrap require it (Istio 1.24 and
// later).
const statDelimiter = ";"

// builder holds a cluster that is being built.
type builder struct {
	*clusterv3.Cluster
	http     *upstreamv3.HttpProtocolOptions // nil: no HTTP option is set
	mesh     *model.Mesh
	problems []error // problems of settings and patches that the cluster leaves out or changes
}

// newBuilder returns a builder whose cluster has the fields that all clusters have.
func newBuilder(
	name string, kind clusterv3.Cluster_DiscoveryType, connection traffic.Connection, mesh *model.Mesh,
) *builder {
	d := &builder{mesh: mesh, Cluster: &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          name + statDelimiter,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: kind},
		ConnectTimeout:       durationpb.New(connection.Timeout),
	}}
	if kind == clusterv3.Cluster_ORIGINAL_DST {
		d.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	}
	return d
}

// report adds a problem about a setting at an object's field. The cluster leaves out or changes that setting.
func (d *builder) report(code problem.Code, at model.Place, format string, args ...any) {
	d.problems = append(d.problems, model.Problem{Key: at.Key, Field: at.Field, Code: code,
		Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
}

// notNegative reports whether a duration is set, valid and at least zero.
func notNegative(t *durationpb.Duration) bool {
	return t != nil && t.IsValid() && t.Seconds >= 0 && t.Nanos >= 0
}

// istioMetadata returns the fields of the cluster's metadata "istio", which the caller may change. Istio's telemetry,
// istioctl and EnvoyFilters read this metadata.
func (d *builder) istioMetadata() map[string]*structpb.Value {
	if d.Metadata == nil {
		d.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: map[string]*structpb.Value{}}}}
	}
	return d.Metadata.FilterMetadata["istio"].Fields
}

// setServiceMetadata sets the name of the service behind the cluster in the metadata.
func (d *builder) setServiceMetadata(host string, service *model.Service) {
	d.istioMetadata()["services"] = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
		structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host":      structpb.NewStringValue(host),
			"name":      structpb.NewStringValue(service.Key.Name),
			"namespace": structpb.NewStringValue(service.Key.Namespace),
		}}),
	}})
}

// httpOptions returns the cluster's HTTP options, which the caller may change.
func (d *builder) httpOptions() *upstreamv3.HttpProtocolOptions {
	if d.http == nil {
		d.http = &upstreamv3.HttpProtocolOptions{}
	}
	return d.http
}

// useHTTP2 makes the cluster use only HTTP/2.
func (d *builder) useHTTP2() {
	d.httpOptions().UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		},
	}
}

// useClientProtocol makes the cluster use the HTTP version of the client's request.
func (d *builder) useClientProtocol() {
	d.httpOptions().UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
		UseDownstreamProtocolConfig: &upstreamv3.HttpProtocolOptions_UseDownstreamHttpConfig{
			HttpProtocolOptions:  &corev3.Http1ProtocolOptions{},
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		},
	}
}

// keepHeaderCase preserves the case of HTTP/1 header names, if the cluster may use HTTP/1.
func (d *builder) keepHeaderCase() {
	http1 := d.httpOptions().GetUseDownstreamProtocolConfig().GetHttpProtocolOptions()
	if d.http.UpstreamProtocolOptions == nil {
		http1 = &corev3.Http1ProtocolOptions{}
		explicit := &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: http1}}
		d.http.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit}
	}
	if http1 != nil {
		http1.HeaderKeyFormat = xds.KeepHeaderCase()
	}
}

// http2 returns the HTTP/2 options of a cluster that uses only HTTP/2, or nil for other clusters.
func (d *builder) http2() *corev3.Http2ProtocolOptions {
	return d.http.GetExplicitHttpConfig().GetHttp2ProtocolOptions()
}

// removeEndpoints removes the endpoints of the cluster, so that requests get status 503 (UH) and connections are
// closed. It is used in two cases: there are no endpoints, or a setting requires security that is not supported. In
// the second case the traffic would otherwise be unencrypted.
func (d *builder) removeEndpoints() {
	d.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	d.LbPolicy, d.LbConfig = clusterv3.Cluster_LEAST_REQUEST, nil
	d.EdsClusterConfig, d.LoadAssignment, d.TransportSocket, d.TransportSocketMatches = nil, nil, nil, nil
	d.DnsRefreshRate, d.RespectDnsTtl, d.DnsLookupFamily, d.DnsJitter = nil, false, 0, nil
	d.DnsFailureRefreshRate, d.TypedDnsResolverConfig = nil, nil
}

// patchAndEncode packs the HTTP options, applies the patches and encodes the cluster. A patch that does not decode, or
// whose result Envoy would refuse, is skipped and reported. The error names the constraint of Envoy's API that the
// cluster violates even without patches. It may also be the error of xds.Encode. t, which may be nil, records the
// patches that change the cluster.
func (d *builder) patchAndEncode(patches []model.Patch, t *patch.Trace) (*xds.Resource, error) {
	err := patch.Check(d.Cluster)
	if err == nil {
		err = d.packHTTP()
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", d.Name, err)
	}
	c, faults := t.Cluster(d.Cluster, patches)
	d.problems = append(d.problems, faults...)
	d.Cluster = c
	return encode(c.Name, c, referencesOf(c))
}

// packHTTP encodes the HTTP options, which nearly all clusters have, into the cluster. It validates the options before
// it encodes them, because decoding them for the validation would take much time. The error names the constraint of
// Envoy's API that the options violate.
func (d *builder) packHTTP() error {
	if d.http == nil {
		return nil
	}
	if d.http.UpstreamProtocolOptions == nil {
		d.http.UpstreamProtocolOptions = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
				},
			},
		}
	}
	if err := patch.Check(d.http); err != nil {
		return fmt.Errorf("%s: %w", httpOptions, err)
	}
	d.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: xds.Any(d.http)}
	return nil
}

// percent returns Envoy's percentage for p, limited to the range from 0 to 100.
func percent(p float64) *typev3.Percent { return &typev3.Percent{Value: min(max(p, 0), 100)} }
