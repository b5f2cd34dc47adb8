// Package telemetry builds the settings of access logs, tracing and metrics in listeners, from Specs. The planner
// (push/plan/telemetry) decides which logs, spans and metrics are on, and with which provider. The settings of a
// provider come from meshConfig.extensionProviders.
//
// Owns: nothing.
// Reads: its Specs, and the mesh configuration.
// Never: reads stored records or a clock.
package telemetry

import (
	"strings"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec contains the telemetry settings of a proxy's listeners of one direction. It is comparable. With the zero Spec,
// the mesh's accessLogFile and defaultProviders.metrics decide about access logs and metrics, and no spans are sent.
type Spec struct {
	// Logs are the access logs, sorted by provider. If Logs is not empty, accessLogFile has an effect only through a
	// Log with the Provider MeshLog.
	Logs    intern.List[Log]
	Tracing Tracing
	Metrics Metrics
	By      intern.List[model.Key] // keys of the Telemetries that set logs or metrics
}

// Log is one access log.
type Log struct {
	Provider string  // name of the provider, or MeshLog
	To       Service // the provider's service; zero for a file
	Filter   string  // CEL expression that an entry must satisfy to be logged; empty: every entry is logged
	Disabled bool    // the log is off
}

// Service is the service to which a provider sends data: its host, and the name of its cluster in Envoy. The zero
// Service means that the provider has no service.
type Service struct{ Host, Cluster string }

// Tracing contains the settings of spans. With the zero Tracing no request is sampled and no spans are sent.
type Tracing struct {
	On       bool    // requests are sampled; their spans are sent if the proxy has a tracer
	Provider string  // name of the provider; empty: the tracer of the proxy's bootstrap, if any
	To       Service // the provider's service
	Sampler  Service // the service that the provider's sampler states; zero: the sampler uses To
	Name     string  // service name in the proxy's spans (node.cluster)
	Sampling float64 // percentage of requests that are sampled if the client has not decided; 0 to 100
	Tags     intern.List[Tag]
	// MaxPathTagLength is the number of bytes after which paths in spans are cut; 0: Envoy's 256.
	MaxPathTagLength uint32
	RequestID        bool                   // the request ID carries the sampling decision
	NoPropagation    bool                   // trace headers are not forwarded
	By               intern.List[model.Key] // keys of the Telemetries that set tracing
}

// Kind names the source of a Tag's value.
type Kind uint8

// The kinds of tags.
const (
	Literal     Kind = iota // Value itself
	Environment             // variable of the proxy's process: Value is its name
	Header                  // header of the request: Value is its name
	Formatter               // Value is a format of Envoy's access logs
	DryRun                  // result of a dry run of AuthorizationPolicies: Value is its key in the RBAC filter's metadata
)

// Tag is one tag of each span.
type Tag struct {
	Name    string // in the span
	Kind    Kind   // source of the value
	Value   string // depends on Kind
	Default string // value if the variable or header is missing; empty: Envoy omits the tag
}

// Metrics contains the settings of Istio's metrics, which the filter istio.stats or Envoy's stats access logger counts.
// With the zero Metrics, all metrics are counted if the mesh's default providers of metrics include Prometheus, and no
// metrics otherwise.
type Metrics struct {
	Said      bool                  // a Telemetry sets metrics; false: the default providers decide, and the other fields are zero
	Off       bool                  // nothing is counted
	Overrides intern.List[Override] // sorted by metric, then by tag
	// Interval is the time between updates for an open TCP connection. Only the filter istio.stats uses Interval. 0
	// means the filter's default, 5 s.
	Interval time.Duration
}

// Override changes a metric, or one of its tags.
type Override struct {
	Metric string // Istio's name without "istio_"
	Drop   bool   // the metric is not counted
	Tag    string // empty: the override concerns the metric itself
	Value  string // CEL expression of the tag's value; empty: the tag is removed
}

// WithoutSpans returns a copy of the Spec that sends no spans, for listeners without HTTP.
func (s Spec) WithoutSpans() Spec {
	s.Tracing = Tracing{}
	return s
}

// builtIn are the built-in providers, which need no entry in meshConfig.extensionProviders
// (https://istio.io/latest/docs/tasks/observability/logs/access-log/; istio: pkg/config/mesh/mesh.go,
// DefaultMeshConfig).
var builtIn = []*meshv1.MeshConfig_ExtensionProvider{
	{Name: "prometheus", Provider: &meshv1.MeshConfig_ExtensionProvider_Prometheus{
		Prometheus: &meshv1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{},
	}},
	{Name: envoyProvider, Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
		EnvoyFileAccessLog: &meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: standardOutput},
	}},
}

// Provider returns the provider with a name; nil if no provider has the name. Names are compared without regard to
// case. The mesh's own providers precede the built-in ones (prometheus, envoy). The result is shared and read-only.
func Provider(mesh *meshv1.MeshConfig, name string) *meshv1.MeshConfig_ExtensionProvider {
	for _, list := range [][]*meshv1.MeshConfig_ExtensionProvider{mesh.GetExtensionProviders(), builtIn} {
		for _, p := range list {
			if strings.EqualFold(p.GetName(), name) {
				return p
			}
		}
	}
	return nil
}

// Address is the address of a service, as a provider states it.
type Address struct {
	Service string // NAMESPACE/HOST or HOST
	Port    uint32
}

// ServiceOf returns the address of the service to which a provider's access logs or spans are sent. It returns the zero
// Address and false for nil, and for providers without a service.
func ServiceOf(p *meshv1.MeshConfig_ExtensionProvider) (Address, bool) {
	type named interface {
		GetService() string
		GetPort() uint32
	}
	var of named
	switch t := p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_Zipkin:
		of = t.Zipkin
	case *meshv1.MeshConfig_ExtensionProvider_Datadog:
		of = t.Datadog
	case *meshv1.MeshConfig_ExtensionProvider_Skywalking:
		of = t.Skywalking
	case *meshv1.MeshConfig_ExtensionProvider_Opentelemetry:
		of = t.Opentelemetry
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		of = t.EnvoyHttpAls
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		of = t.EnvoyTcpAls
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		of = t.EnvoyOtelAls
	default:
		return Address{}, false
	}
	return Address{of.GetService(), of.GetPort()}, true
}

// SamplerOf returns the address of the service that a provider's Dynatrace sampler states. It returns the zero Address
// and false for nil, for a provider without a Dynatrace sampler, and for a sampler that states no service. A sampler
// without a service uses the service of the provider.
func SamplerOf(p *meshv1.MeshConfig_ExtensionProvider) (Address, bool) {
	api := p.GetOpentelemetry().GetDynatraceSampler().GetHttpService()
	return Address{api.GetService(), api.GetPort()}, api != nil
}

// Samples reports whether a provider has its own sampler. Such a sampler decides about all spans. For nil, the result
// is false.
func Samples(p *meshv1.MeshConfig_ExtensionProvider) bool {
	return p.GetOpentelemetry().GetSampling() != nil
}

// LogCap returns the capability that a proxy needs to write a provider's access log. It returns 0 and false if the
// provider is nil or not for access logs.
func LogCap(p *meshv1.MeshConfig_ExtensionProvider) (xds.Caps, bool) {
	switch p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		return xds.CapFileAccessLog, true
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		return xds.CapHTTPGRPCLog, true
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		return xds.CapTCPGRPCLog, true
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		return xds.CapOpenTelemetryLog, true
	}
	return 0, false
}

// TracerCap returns the capability that a proxy needs to send spans to a provider. It returns 0 and false if the
// provider is nil or not for spans.
func TracerCap(p *meshv1.MeshConfig_ExtensionProvider) (xds.Caps, bool) {
	switch p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_Zipkin:
		return xds.CapZipkin, true
	case *meshv1.MeshConfig_ExtensionProvider_Datadog:
		return xds.CapDatadog, true
	case *meshv1.MeshConfig_ExtensionProvider_Skywalking:
		return xds.CapSkyWalking, true
	case *meshv1.MeshConfig_ExtensionProvider_Opentelemetry:
		return xds.CapOpenTelemetry, true
	}
	return 0, false
}
