package normal

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/parser"
	meshv1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	typev1 "istio.io/api/type/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// telemetryRecords returns the record of a Telemetry. A Telemetry with targetRefs applies only to the Gateways among
// the targets. If no target is a Gateway, the result is nil.
func telemetryRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	t := &telemetryv1.Telemetry{}
	if !r.spec(obj, t) {
		return nil
	}
	r.mesh = true
	r.selector("spec.selector.matchLabels", t.Selector.GetMatchLabels())
	r.targetRefs(t.Selector, t.TargetRef, t.TargetRefs)
	if len(t.Tracing)+len(t.Metrics)+len(t.AccessLogging) == 0 {
		r.warnf(problem.NoEffect, "spec", "neither tracing nor accessLogging nor metrics: the Telemetry does nothing")
	}
	for i, one := range t.Tracing {
		checkTracing(r, fmt.Sprintf("spec.tracing[%d]", i), one, ctx.Mesh())
	}
	for i, one := range t.AccessLogging {
		at := fmt.Sprintf("spec.accessLogging[%d]", i)
		checkAccessLogging(r, at, one, ctx.Mesh())
		// A Telemetry with a selector or in another namespace may inherit providers.
		if top := t.Selector == nil && obj.ID.Namespace == ctx.Mesh().GetRootNamespace(); top && i == 0 && len(one.Providers) == 0 &&
			!one.GetDisabled().GetValue() &&
			len(ctx.Mesh().GetDefaultProviders().GetAccessLogging()) == 0 && ctx.Mesh().GetAccessLogFile() == "" {
			r.analysef(problem.InvalidTelemetryProvider, problem.NoEffect, at,
				"names no provider, and meshConfig neither has defaultProviders.accessLogging nor accessLogFile")
		}
	}
	for i, one := range t.Metrics {
		checkMetrics(r, fmt.Sprintf("spec.metrics[%d]", i), one, ctx.Mesh())
	}
	if t.TargetRefs, t.TargetRef = allTargets(t.TargetRef, t.TargetRefs), nil; len(t.TargetRefs) > 0 {
		names := model.TargetGateways(t.TargetRefs)
		if len(names) == 0 {
			return nil
		}
		t.Selector = &typev1.WorkloadSelector{MatchLabels: model.SelectorOfGateways(names)}
	}
	return r.record(model.KindTelemetry, obj, obj.ID.Name, t)
}

// checkProviders warns of unknown providers, and reports an error for an empty name.
func checkProviders(r *report, at string, refs []*telemetryv1.ProviderRef, mesh *meshv1.MeshConfig) {
	for i, ref := range refs {
		name := fmt.Sprintf("%s.providers[%d].name", at, i)
		switch {
		case ref.GetName() == "":
			r.requiredf(name, "must not be empty")
		case !hasProvider(mesh, ref.GetName()):
			r.analysef(problem.ReferencedResourceNotFound, problem.NotFound, name, "no provider of extensionProviders is called %q", ref.GetName())
		}
	}
}

// hasProvider reports whether a provider with the given name exists, ignoring case. Istio's default providers envoy and
// prometheus always exist.
func hasProvider(mesh *meshv1.MeshConfig, name string) bool {
	for _, p := range mesh.GetExtensionProviders() {
		if strings.EqualFold(p.GetName(), name) {
			return true
		}
	}
	return strings.EqualFold(name, "envoy") || strings.EqualFold(name, "prometheus")
}

// checkTracing validates tracing settings. It removes tags without a type, and tags with a format that Envoy refuses.
func checkTracing(r *report, at string, t *telemetryv1.Tracing, mesh *meshv1.MeshConfig) {
	checkProviders(r, at, t.Providers, mesh)
	if len(t.Providers) > 1 {
		r.warnf(problem.NoEffect, at+".providers", "spans go to the first one alone")
	}
	if p := t.RandomSamplingPercentage; p != nil && !(p.Value >= 0 && p.Value <= 100) { // also refuses NaN
		r.errorf(at+".randomSamplingPercentage", "%v is not in 0-100", p.Value)
	}
	for _, name := range sortedKeys(t.CustomTags) {
		tag := fmt.Sprintf("%s.customTags[%s]", at, name)
		if name == "" {
			r.requiredf(at+".customTags", "a tag without a name")
		}
		switch of := t.CustomTags[name].GetType().(type) {
		case *telemetryv1.Tracing_CustomTag_Literal:
			r.needed(tag+".literal.value", of.Literal.GetValue())
		case *telemetryv1.Tracing_CustomTag_Environment:
			r.needed(tag+".environment.name", of.Environment.GetName())
		case *telemetryv1.Tracing_CustomTag_Header:
			r.needed(tag+".header.name", of.Header.GetName())
		case *telemetryv1.Tracing_CustomTag_Formatter:
			r.needed(tag+".formatter.value", of.Formatter.GetValue())
			if err := model.CheckFormat(of.Formatter.GetValue()); err != nil {
				r.refusef(problem.Invalid, tag+".formatter.value", "%q: %v; the tag is left out", of.Formatter.GetValue(), err)
				delete(t.CustomTags, name)
			}
		default: // accepted by Istio
			r.warnf(problem.NoEffect, tag, "has neither a literal nor an environment, header or formatter: the tag is left out")
			delete(t.CustomTags, name)
		}
	}
}

// needed reports a missing text.
func (r *report) needed(at, text string) {
	if text == "" {
		r.requiredf(at, "must not be empty")
	}
}

// checkAccessLogging validates access logging.
func checkAccessLogging(r *report, at string, l *telemetryv1.AccessLogging, mesh *meshv1.MeshConfig) {
	checkProviders(r, at, l.Providers, mesh)
	if l.Filter == nil {
		return
	}
	checkCEL(r, at+".filter.expression", l.Filter.Expression)
}

// mostCEL bounds the bytes of the CEL expressions of one object. The check of a byte takes about half a microsecond.
const mostCEL = 64 << 10

// celParser returns the parser of CEL expressions.
var celParser = sync.OnceValues(func() (*parser.Parser, error) { return parser.NewParser(parser.Macros(parser.AllMacros...)) })

// checkCEL validates a CEL expression. Envoy would refuse each listener with an invalid one. The expressions beyond
// mostCEL are not parsed.
func checkCEL(r *report, at, expression string) {
	before := r.celBytes
	switch r.celBytes += len(expression); {
	case before > mostCEL:
		return // reported already
	case r.celBytes > mostCEL:
		r.errorf(at, "the expressions up to this one have %d bytes: at most %d may be in one object", r.celBytes, mostCEL)
		return
	}
	p, err := celParser()
	if err != nil {
		r.errorf(at, "%v", err)
		return
	}
	if _, wrong := p.Parse(common.NewTextSource(expression)); len(wrong.GetErrors()) > 0 {
		first := wrong.GetErrors()[0]
		r.errorf(at, "is no CEL expression: column %d: %s", first.Location.Column()+1, first.Message)
	}
}

// checkMetrics validates settings of metrics, and removes tags without a name.
func checkMetrics(r *report, at string, m *telemetryv1.Metrics, mesh *meshv1.MeshConfig) {
	checkProviders(r, at, m.Providers, mesh)
	for i, o := range m.Overrides {
		override := fmt.Sprintf("%s.overrides[%d]", at, i)
		if custom, is := o.GetMatch().GetMetricMatch().(*telemetryv1.MetricSelector_CustomMetric); is {
			r.needed(override+".match.customMetric", custom.CustomMetric)
		}
		for _, name := range sortedKeys(o.TagOverrides) {
			tag := fmt.Sprintf("%s.tagOverrides[%s]", override, name)
			switch of := o.TagOverrides[name]; {
			case name == "": // accepted by Istio
				r.warnf(problem.NoEffect, override+".tagOverrides", "a tag without a name is left out")
				delete(o.TagOverrides, name)
			case of.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_UPSERT:
				r.needed(tag+".value", of.GetValue())
			case of.GetValue() != "":
				r.errorf(tag+".value", "cannot be combined with operation %v", of.GetOperation())
			}
		}
	}
}

// checkDefaultProviders warns of unknown providers in defaultProviders of the mesh configuration.
func checkDefaultProviders(r *report, mesh *meshv1.MeshConfig) {
	defaults := mesh.GetDefaultProviders()
	for _, of := range []struct {
		field string
		names []string
	}{{"tracing", defaults.GetTracing()}, {"metrics", defaults.GetMetrics()}, {"accessLogging", defaults.GetAccessLogging()}} {
		for i, name := range of.names {
			if !hasProvider(mesh, name) {
				r.analysef(problem.ReferencedResourceNotFound, problem.NotFound, fmt.Sprintf("data.mesh.defaultProviders.%s[%d]", of.field, i),
					"no provider of extensionProviders is called %q", name)
			}
		}
	}
}

// checkTracer validates the settings with which a tracing provider exports spans.
func checkTracer(r *report, at string, p *meshv1.MeshConfig_ExtensionProvider) {
	exportHeaders(r, at+".zipkin.headers", p.GetZipkin().GetHeaders())
	otel := p.GetOpentelemetry()
	exportHeaders(r, at+".opentelemetry.http.headers", otel.GetHttp().GetHeaders())
	exportHeaders(r, at+".opentelemetry.grpc.initialMetadata", otel.GetGrpc().GetInitialMetadata())
	api := otel.GetDynatraceSampler().GetHttpService()
	exportHeaders(r, at+".opentelemetry.dynatraceSampler.httpService.http.headers", api.GetHttp().GetHeaders())
	if otel.GetDynatraceSampler() != nil && api == nil && otel.GetHttp() == nil {
		r.warnf(problem.Required, at+".opentelemetry.dynatraceSampler.httpService",
			"must be stated where spans are sent by gRPC: no spans are sent")
	}
}

// exportHeaders reports header names that Envoy refuses.
func exportHeaders(r *report, at string, headers []*meshv1.MeshConfig_ExtensionProvider_HttpHeader) {
	for i, h := range headers {
		if !headerName.MatchString(h.GetName()) {
			r.errorf(fmt.Sprintf("%s[%d].name", at, i), "%q is no header name", h.GetName())
		}
	}
}
