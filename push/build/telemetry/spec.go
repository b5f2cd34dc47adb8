// Package telemetry draws how listeners report their traffic: access logs, spans and metrics. The plan has decided what is reported, and to
// which provider; the settings of a provider are those of meshConfig.extensionProviders.
//
// Owns: nothing.  Reads: its Specs, and the providers of the mesh configuration.  Never: the snapshot, a view, a clock.
package telemetry

import (
	"strings"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Spec is what the listeners of one direction of a proxy report. Comparable. The zero Spec: what the mesh configuration says by
// accessLogFile and defaultProviders.metrics, and nothing is sampled for spans.
type Spec struct {
	// Logs are the access logs, sorted by provider. Where there are any, disabled ones too, accessLogFile is without effect.
	Logs    intern.List[Log]
	Tracing Tracing
	Metrics Metrics
	By      intern.List[model.Key] // the Telemetries that say something of logs or metrics
}

// Log is one access log.
type Log struct {
	Provider string // its name
	To       Service
	Filter   string // CEL: only what it holds for is logged; empty: everything
	Disabled bool   // nothing is logged
}

// Service is the service behind a provider. Zero: the provider has none, or it sends nothing there.
type Service struct{ Host, Cluster string }

// Tracing is how spans are sent. The zero Tracing: none are.
type Tracing struct {
	On       bool
	Provider string  // its name; empty: the tracer of the proxy's bootstrap
	To       Service // of the provider
	Sampler  Service // of a sampler that asks a service of its own; zero: that of the provider
	Name     string  // by which the proxy's spans are known (node.cluster)
	Sampling float64 // percent of requests that nobody else has decided about
	Tags     intern.List[Tag]
	// MaxPathTagLength is how many bytes of a path are kept; 0: Envoy's 256.
	MaxPathTagLength uint32
	RequestID        bool                   // whether the request id says if a request is sampled
	NoPropagation    bool                   // the headers of the trace are not passed on
	By               intern.List[model.Key] // the Telemetries that say something of spans
}

// Kind is where a Tag has its value from.
type Kind uint8

// The kinds of tags.
const (
	Literal     Kind = iota
	Environment      // of the proxy's process: Value is the variable
	Header           // of the request: Value is its name
	Formatter        // an expression of Envoy's access logs
	DryRun           // what AuthorizationPolicies that are not enforced would have done: Value is the key of the RBAC filter's metadata
)

// Tag is one tag of each span.
type Tag struct {
	Name    string
	Kind    Kind
	Value   string
	Default string // where there is no such variable or header; empty: the tag is left out
}

// Metrics is what Istio's filter istio.stats counts. The zero Metrics: all that it knows, where Prometheus is among the default providers.
type Metrics struct {
	Said      bool                  // Telemetries say something: what follows counts
	Off       bool                  // nothing is counted
	Overrides intern.List[Override] // sorted by metric, then by tag
	Interval  time.Duration         // between two reports of a TCP connection; 0: the filter's 5 s
}

// Override is what is other about a metric, or about one tag of it.
type Override struct {
	Metric string // without istio_
	Drop   bool   // it is not counted
	Tag    string // empty: the override is of no tag
	Value  string // a CEL expression; empty: the tag is left out
}

// WithoutSpans is a Spec without its spans: that of listeners without HTTP.
func (s Spec) WithoutSpans() Spec {
	s.Tracing = Tracing{}
	return s
}

// The providers that there are without meshConfig.extensionProviders
// (https://istio.io/latest/docs/tasks/observability/logs/access-log/, istio: pkg/config/mesh/mesh.go, DefaultMeshConfig).
var builtIn = []*meshv1.MeshConfig_ExtensionProvider{
	{Name: "prometheus", Provider: &meshv1.MeshConfig_ExtensionProvider_Prometheus{Prometheus: &meshv1.MeshConfig_ExtensionProvider_PrometheusMetricsProvider{}}},
	{Name: envoyProvider, Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
		EnvoyFileAccessLog: &meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: standardOutput},
	}},
}

// Provider finds a provider by its name, in whatever case; nil: there is none.
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

// Address is a service as a provider names it: NAMESPACE/HOST, or HOST, and its port.
type Address struct {
	Service string
	Port    uint32
}

// ServiceOf is the service of a provider of access logs or spans; false: it has none.
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

// SamplerOf is the service that the sampler of a provider asks, where it is another one than the provider's.
func SamplerOf(p *meshv1.MeshConfig_ExtensionProvider) (Address, bool) {
	api := p.GetOpentelemetry().GetDynatraceSampler().GetHttpService()
	return Address{api.GetService(), api.GetPort()}, api != nil
}

// Samples says whether a provider has a sampler of its own, which decides about all spans.
func Samples(p *meshv1.MeshConfig_ExtensionProvider) bool {
	return p.GetOpentelemetry().GetSampling() != nil
}

// LogCap is what a proxy needs for a provider's access log; false: the provider is for none.
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

// TracerCap is what a proxy needs for a provider's spans; false: the provider is for none.
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
