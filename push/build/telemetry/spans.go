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

// zipkinPath is the path at which Zipkin collectors receive spans in JSON of version 2.
const zipkinPath = "/api/v2/spans"

// exportTimeout is the timeout of HTTP requests to providers that state no timeout, because Envoy requires one.
const exportTimeout = 5 * time.Second

// samplingPath is the path of Dynatrace's API that returns the sampling configuration.
const samplingPath = "api/v2/samplingConfiguration"

// Build returns the tracing settings of a connection manager. If t.Provider is empty, the settings contain no tracer,
// and Envoy uses the tracer of its bootstrap. Build returns nil if tracing is off, if the mesh does not have the
// provider, or if the provider is not for spans. The caller owns the result.
func (t Tracing) Build(mesh *meshv1.MeshConfig) *hcmv3.HttpConnectionManager_Tracing {
	if !t.On {
		return nil
	}
	out := &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling:       &typev3.Percent{Value: 100},
		OverallSampling:      &typev3.Percent{Value: 100},
		RandomSampling:       &typev3.Percent{Value: t.Sampling},
		NoContextPropagation: t.NoPropagation,
		CustomTags:           encodeTags(t.Tags.All()),
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
	if p.GetSkywalking() != nil { // SkyWalking needs a span of each side of a call
		out.SpawnUpstreamSpan = wrapperspb.Bool(true)
	}
	return out
}

// tracer returns the name and the configuration of the Envoy extension that sends spans to a provider. If the provider
// is not for spans, config is nil.
func (t Tracing) tracer(p *meshv1.MeshConfig_ExtensionProvider) (name string, config proto.Message) {
	switch of := p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_Zipkin:
		return "envoy.tracers.zipkin", t.zipkin(of.Zipkin)
	case *meshv1.MeshConfig_ExtensionProvider_Datadog:
		return "envoy.tracers.datadog", &tracev3.DatadogConfig{
			CollectorCluster: t.To.Cluster, ServiceName: t.Name, CollectorHostname: t.To.Host}
	case *meshv1.MeshConfig_ExtensionProvider_Skywalking:
		return "envoy.tracers.skywalking", &tracev3.SkyWalkingConfig{GrpcService: t.To.grpcService()}
	case *meshv1.MeshConfig_ExtensionProvider_Opentelemetry:
		return "envoy.tracers.opentelemetry", t.openTelemetry(of.Opentelemetry)
	}
	return "", nil
}

// zipkin returns the configuration for a Zipkin collector. Only the field CollectorService has a timeout and headers.
// Proxies before Istio 1.29 ignore CollectorService, so the other fields name the collector too.
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
		c.CollectorService = t.To.httpService("http://"+t.To.Host+path, p.GetTimeout(), p.GetHeaders())
	}
	return c
}

// openTelemetry returns the configuration for an OpenTelemetry collector, over HTTP or gRPC.
func (t Tracing) openTelemetry(p *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider) *tracev3.OpenTelemetryConfig {
	c := &tracev3.OpenTelemetryConfig{ServiceName: t.Name}
	if h := p.GetHttp(); h != nil {
		c.HttpService = t.To.httpService(joinURL(t.To.Host, h.GetPath()), h.GetTimeout(), h.GetHeaders())
	} else {
		c.GrpcService = t.To.grpcService()
		c.GrpcService.Timeout = p.GetGrpc().GetTimeout()
		for _, h := range p.GetGrpc().GetInitialMetadata() {
			c.GrpcService.InitialMetadata = append(c.GrpcService.InitialMetadata,
				&corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()})
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

// extension returns an extension with a configuration.
func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: xds.Any(config)}
}

// dynatrace returns the configuration of Dynatrace's sampler. The sampler queries the service that receives the spans,
// unless s states another service.
func (t Tracing) dynatrace(p *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider,
	s *meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider_DynatraceSampler) *samplersv3.DynatraceSamplerConfig {
	to, path, from := t.To, samplingPath, p.GetHttp()
	if api := s.GetHttpService(); api != nil {
		to, path, from = t.Sampler, api.GetHttp().GetPath(), api.GetHttp()
	}
	return &samplersv3.DynatraceSamplerConfig{
		Tenant: s.GetTenant(), ClusterId: s.GetClusterId(), RootSpansPerMinute: s.GetRootSpansPerMinute(),
		HttpService: to.httpService(joinURL(to.Host, path), from.GetTimeout(), from.GetHeaders()),
	}
}

// joinURL returns host and path as a URL without a scheme, because the cluster decides between HTTP and HTTPS. For an
// invalid host it returns host alone.
func joinURL(host, path string) string {
	uri, err := url.JoinPath(host, path)
	if err != nil {
		return host
	}
	return uri
}

// httpService returns the configuration of HTTP requests to the service. A nil timeout means exportTimeout.
func (s Service) httpService(
	uri string, timeout *durationpb.Duration, headers []*meshv1.MeshConfig_ExtensionProvider_HttpHeader,
) *corev3.HttpService {
	if timeout == nil {
		timeout = durationpb.New(exportTimeout)
	}
	out := &corev3.HttpService{HttpUri: &corev3.HttpUri{
		Uri: uri, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: s.Cluster}, Timeout: timeout}}
	for _, h := range headers {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			Header:       &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()},
		})
	}
	return out
}
