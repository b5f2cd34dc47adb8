package telemetry

import (
	"net/url"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// zipkinPath is where a Zipkin collector takes spans in JSON of version 2.
const zipkinPath = "/api/v2/spans"

// exportTimeout is how long a collector may take for spans over HTTP, where nobody says so: Envoy wants a timeout.
const exportTimeout = 5 * time.Second

// samplingPath is where the API of Dynatrace says which spans it wants.
const samplingPath = "api/v2/samplingConfiguration"

// Draw is the tracing of a connection manager; nil where no spans are sent, or the provider is for none.
func (t Tracing) Draw(mesh *meshv1.MeshConfig) *hcmv3.HttpConnectionManager_Tracing {
	if !t.On {
		return nil
	}
	out := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling:       &typev3.Percent{Value: 100},
		OverallSampling:      &typev3.Percent{Value: 100},
		RandomSampling:       &typev3.Percent{Value: t.Sampling},
		NoContextPropagation: t.NoPropagation,
		CustomTags:           drawTags(t.Tags.All()),
	}
	if t.MaxPathTagLength != 0 {
		out.MaxPathTagLength = wrapperspb.UInt32(t.MaxPathTagLength)
	}
	if t.Provider == "" {
		return out
	}
	p := Provider(mesh, t.Provider)
	name, config := t.tracer(p)
	if config == nil {
		return nil
	}
	out.Provider = &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: xds.Any(config)}}
	if p.GetSkywalking() != nil { // its spans are pairs: one of the caller, one of the called
		out.SpawnUpstreamSpan = wrapperspb.Bool(true)
	}
	return out
}

// tracer is the extension of Envoy's that sends spans to a provider, and its configuration; nil where the provider is for none.
func (t Tracing) tracer(p *meshv1.MeshConfig_ExtensionProvider) (name string, config proto.Message) {
	switch of := p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_Zipkin:
		return "envoy.tracers.zipkin", t.zipkin(of.Zipkin)
	case *meshv1.MeshConfig_ExtensionProvider_Datadog:
		return "envoy.tracers.datadog", &tracev3.DatadogConfig{CollectorCluster: t.To.Cluster, ServiceName: t.Name, CollectorHostname: t.To.Host}
	case *meshv1.MeshConfig_ExtensionProvider_Skywalking:
		return "envoy.tracers.skywalking", &tracev3.SkyWalkingConfig{GrpcService: t.To.grpc()}
	case *meshv1.MeshConfig_ExtensionProvider_Opentelemetry:
		return "envoy.tracers.opentelemetry", t.openTelemetry(of.Opentelemetry)
	}
	return "", nil
}

// zipkin has both forms of a collector where a timeout or headers are stated: Envoys before those of Istio 1.29 know the first alone, and go on
// without these.
func (t Tracing) zipkin(p *meshv1.MeshConfig_ExtensionProvider_ZipkinTracingProvider) *tracev3.ZipkinConfig {
	path := p.GetPath()
	if path == "" {
		path = zipkinPath
	}
	c := &tracev3.ZipkinConfig{
		CollectorCluster:         t.To.Cluster,
		CollectorEndpoint:        path,
		CollectorHostname:        t.To.Host,
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
		TraceId_128Bit:           !p.GetEnable_64BitTraceId(),
		SharedSpanContext:        wrapperspb.Bool(false),
	}
	if p.GetTraceContextOption() == meshv1.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION {
		c.TraceContextOption = tracev3.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION
	}
	if p.GetTimeout() != nil || len(p.GetHeaders()) > 0 {
		c.CollectorService = t.To.http("http://"+t.To.Host+path, p.GetTimeout(), p.GetHeaders())
	}
	return c
}

func (t Tracing) openTelemetry(p *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider) *tracev3.OpenTelemetryConfig {
	c := &tracev3.OpenTelemetryConfig{ServiceName: t.Name}
	if h := p.GetHttp(); h != nil {
		c.HttpService = t.To.http(joined(t.To.Host, h.GetPath()), h.GetTimeout(), h.GetHeaders())
	} else {
		c.GrpcService = t.To.grpc()
		c.GrpcService.Timeout = p.GetGrpc().GetTimeout()
		for _, h := range p.GetGrpc().GetInitialMetadata() {
			c.GrpcService.InitialMetadata = append(c.GrpcService.InitialMetadata, &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()})
		}
	}
	if p.GetResourceDetectors().GetEnvironment() != nil {
		c.ResourceDetectors = append(c.ResourceDetectors,
			extension("envoy.tracers.opentelemetry.resource_detectors.environment", &detectorsv3.EnvironmentResourceDetectorConfig{}))
	}
	if p.GetResourceDetectors().GetDynatrace() != nil {
		c.ResourceDetectors = append(c.ResourceDetectors,
			extension("envoy.tracers.opentelemetry.resource_detectors.dynatrace", &detectorsv3.DynatraceResourceDetectorConfig{}))
	}
	if s := p.GetDynatraceSampler(); s != nil {
		c.Sampler = extension("envoy.tracers.opentelemetry.samplers.dynatrace", t.dynatrace(p, s))
	}
	return c
}

func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: xds.Any(config)}
}

// dynatrace is the sampler, which asks the service that takes the spans, unless it has one of its own.
func (t Tracing) dynatrace(p *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider,
	s *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider_DynatraceSampler) *samplersv3.DynatraceSamplerConfig {
	to, path, from := t.To, samplingPath, p.GetHttp()
	if api := s.GetHttpService(); api != nil {
		to, path, from = t.Sampler, api.GetHttp().GetPath(), api.GetHttp()
	}
	return &samplersv3.DynatraceSamplerConfig{
		Tenant: s.GetTenant(), ClusterId: s.GetClusterId(), RootSpansPerMinute: s.GetRootSpansPerMinute(),
		HttpService: to.http(joined(to.Host, path), from.GetTimeout(), from.GetHeaders()),
	}
}

// joined is a host and a path, without a scheme: that is the cluster's.
func joined(host, path string) string {
	uri, err := url.JoinPath(host, path)
	if err != nil { // a host that nothing has
		return host
	}
	return uri
}

// http is the service as a server of HTTP.
func (s Service) http(uri string, timeout *durationpb.Duration, headers []*meshv1.MeshConfig_ExtensionProvider_HttpHeader) *corev3.HttpService {
	if timeout == nil {
		timeout = durationpb.New(exportTimeout)
	}
	out := &corev3.HttpService{HttpUri: &corev3.HttpUri{Uri: uri, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: s.Cluster}, Timeout: timeout}}
	for _, h := range headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, Header: &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()},
		})
	}
	return out
}
