package telemetry

import (
	"cmp"
	"fmt"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// defaultSampling is the percentage of requests that are sampled by default (istiod's PILOT_TRACE_SAMPLING).
const defaultSampling = 1

// spans contains the merged settings of Telemetries for spans.
type spans struct {
	provider      string // may be empty, or the name of a provider that does not exist
	at            place
	disabled      bool
	sampling      *float64
	tags          map[string]*telemetryv1.Tracing_CustomTag
	requestID     bool
	istioTags     bool
	noPropagation bool
}

// tracing decides the tracer, the sampling and the tags of spans. Each setting of a later Telemetry overrides the same
// setting of earlier Telemetries. If neither Telemetries nor defaultProviders configure tracing, enableTracing decides,
// and the tracer comes from the proxy's bootstrap or an EnvoyFilter (istio: pilot/pkg/model/telemetry.go, Tracing;
// pilot/pkg/networking/core/tracing.go).
func (d *decision) tracing(all []*model.Telemetry) build.Tracing {
	if !d.Self.Sends {
		return d.sampled()
	}
	bootstrap := d.Self.Tracing.Or(d.Defaults.Tracing)
	config := bootstrap.Config().GetTracing()
	s, said := d.spans(all)
	if !said {
		if !d.Mesh.Spec.GetEnableTracing() {
			return build.Tracing{}
		}
		s.istioTags = config.GetEnableIstioTags() == nil || config.GetEnableIstioTags().GetValue()
		return d.with(build.Tracing{On: true, RequestID: true}, s, config)
	}
	if s.provider == "" && !s.disabled {
		if bootstrap == "" {
			d.unprovided(s.at, "tracing", "nor defaultConfig.tracing")
			return build.Tracing{}
		}
		// The tracer of the proxy's bootstrap is used.
		return d.with(build.Tracing{On: true, RequestID: s.requestID, NoPropagation: s.noPropagation}, s, config)
	}
	p := build.Provider(d.Mesh.Spec, s.provider)
	if s.disabled || p == nil {
		return build.Tracing{} // store/normal reports unknown names
	}
	t := build.Tracing{On: true, Provider: s.provider, RequestID: s.requestID, NoPropagation: s.noPropagation, Name: d.Self.Name}
	caps, traces := build.TracerCap(p)
	of, _ := build.ServiceOf(p)
	found := traces && d.Caps.Has(caps)
	switch {
	case !traces:
		d.warn(s.at, problem.NotSupported, "provider %s: this version sends no spans to this kind of provider", s.provider)
	case !found:
		d.warn(s.at, problem.NotSupported, "provider %s: some proxies of namespace %s have no tracer for it: they send no spans",
			s.provider, d.Namespace)
	default:
		t.To, found = d.service(s.provider, of, s.at)
	}
	if api, own := build.SamplerOf(p); found && own {
		t.Sampler, found = d.service(s.provider, api, s.at)
	} else if p.GetOpentelemetry().GetDynatraceSampler() != nil && p.GetOpentelemetry().GetHttp() == nil {
		found = found && own // the sampler has no API to call; store/normal reports that
	}
	if !found {
		return build.Tracing{}
	}
	t.MaxPathTagLength = maxTagLength(p)
	t = d.with(t, s, config)
	if build.Samples(p) {
		t.Sampling = 100 // the sampler decides about all requests
	}
	return t
}

// sampled returns the tracing of proxies that send no spans. As in istiod, one percent of the requests are sampled if
// enableTracing is set. The proxy marks these requests in x-request-id, so that other proxies send spans of the
// requests. Tags are left out, because this proxy would send no span with them, and because they would make listeners
// differ between workloads.
func (d *decision) sampled() build.Tracing {
	if !d.Mesh.Spec.GetEnableTracing() {
		return build.Tracing{}
	}
	return build.Tracing{On: true, RequestID: true, Sampling: defaultSampling}
}

// spans merges defaultProviders and the settings of Telemetries, which take precedence. said is false if there are no
// settings.
func (d *decision) spans(all []*model.Telemetry) (s spans, said bool) {
	s = spans{requestID: true, istioTags: true}
	if names := d.Mesh.Spec.GetDefaultProviders().GetTracing(); len(names) > 0 {
		s.provider, s.at, said = names[0], place{model.MeshKey, "defaultProviders.tracing[0]"}, true
	}
	for _, t := range all {
		for i, one := range t.Spec.GetTracing() {
			said = true
			if !d.applies(one.GetMatch().GetMode()) {
				continue
			}
			if names := namesOf(one.GetProviders()); len(names) > 0 {
				s.provider, s.at = names[0], place{t.Key, fmt.Sprintf("spec.tracing[%d].providers[0]", i)}
			} else if s.provider == "" {
				s.at = place{t.Key, fmt.Sprintf("spec.tracing[%d]", i)}
			}
			s.override(one)
		}
	}
	return s, said
}

// override replaces the settings of earlier entries by the settings that t contains.
func (s *spans) override(t *telemetryv1.Tracing) {
	if t.DisableSpanReporting != nil {
		s.disabled = t.DisableSpanReporting.GetValue()
	}
	if t.CustomTags != nil {
		s.tags = t.CustomTags
	}
	if t.RandomSamplingPercentage != nil {
		s.sampling = &t.RandomSamplingPercentage.Value
	}
	if t.UseRequestIdForTraceSampling != nil {
		s.requestID = t.UseRequestIdForTraceSampling.GetValue()
	}
	if t.EnableIstioTags != nil {
		s.istioTags = t.EnableIstioTags.GetValue()
	}
	if t.DisableContextPropagation != nil {
		s.noPropagation = t.DisableContextPropagation.GetValue()
	}
}

// with returns a copy of t in which the sampling, the tags and the maximum length of paths are set. A setting that is
// neither in s nor in t comes from config, the field tracing of the ProxyConfig.
func (d *decision) with(t build.Tracing, s spans, config *meshv1.Tracing) build.Tracing {
	t.Sampling = defaultSampling
	switch {
	case s.sampling != nil:
		t.Sampling = *s.sampling
	case config.GetSampling() > 0 && config.GetSampling() <= 100:
		t.Sampling = config.GetSampling()
	}
	t.MaxPathTagLength = cmp.Or(t.MaxPathTagLength, config.GetMaxPathTagLength())
	var all []build.Tag
	if s.istioTags {
		all = append(d.selfTags(), build.DryRunTags...)
	}
	if len(s.tags) > 0 {
		all = append(all, tagsOf(s.tags)...)
	} else {
		all = append(all, configTags(config.GetCustomTags())...)
	}
	slices.SortStableFunc(all, byName)
	t.Tags = tags.List(all...)
	return t
}

// maxTagLength returns a provider's maximum length, in bytes, of a path in spans. It is 0 if the provider has no
// maximum.
func maxTagLength(p *meshv1.MeshConfig_ExtensionProvider) uint32 {
	return cmp.Or(p.GetZipkin().GetMaxTagLength(), p.GetDatadog().GetMaxTagLength(), p.GetOpentelemetry().GetMaxTagLength())
}

// selfTags returns Istio's tags, which identify the workload of a span.
func (d *decision) selfTags() []build.Tag {
	unknown := func(text string) string { return cmp.Or(text, "unknown") }
	return []build.Tag{
		{Name: "istio.canonical_revision", Value: cmp.Or(d.Self.Revision, "latest")},
		{Name: "istio.canonical_service", Value: unknown(d.Self.Service)},
		{Name: "istio.cluster_id", Value: unknown(d.Self.Cluster)},
		{Name: "istio.mesh_id", Value: unknown(d.Self.Mesh)},
		{Name: "istio.namespace", Value: d.Namespace},
	}
}

// tagsOf returns the custom tags of a Telemetry, in no order.
func tagsOf(custom map[string]*telemetryv1.Tracing_CustomTag) (out []build.Tag) {
	for name, tag := range custom {
		switch of := tag.GetType().(type) {
		case *telemetryv1.Tracing_CustomTag_Literal:
			out = append(out, build.Tag{Name: name, Kind: build.Literal, Value: of.Literal.GetValue()})
		case *telemetryv1.Tracing_CustomTag_Environment:
			out = append(out, build.Tag{Name: name, Kind: build.Environment, Value: of.Environment.GetName(),
				Default: of.Environment.GetDefaultValue()})
		case *telemetryv1.Tracing_CustomTag_Header:
			out = append(out, build.Tag{Name: name, Kind: build.Header, Value: of.Header.GetName(), Default: of.Header.GetDefaultValue()})
		case *telemetryv1.Tracing_CustomTag_Formatter:
			out = append(out, build.Tag{Name: name, Kind: build.Formatter, Value: of.Formatter.GetValue()})
		}
	}
	return out
}

// configTags returns the custom tags of a ProxyConfig, in no order. store/proxyconfig has removed settings that Envoy
// would reject.
func configTags(custom map[string]*meshv1.Tracing_CustomTag) (out []build.Tag) {
	add := func(t build.Tag) {
		if t.Name != "" && t.Value != "" {
			out = append(out, t)
		}
	}
	for name, tag := range custom {
		switch of := tag.GetType().(type) {
		case *meshv1.Tracing_CustomTag_Literal:
			add(build.Tag{Name: name, Kind: build.Literal, Value: of.Literal.GetValue()})
		case *meshv1.Tracing_CustomTag_Environment:
			add(build.Tag{Name: name, Kind: build.Environment, Value: of.Environment.GetName(), Default: of.Environment.GetDefaultValue()})
		case *meshv1.Tracing_CustomTag_Header:
			add(build.Tag{Name: name, Kind: build.Header, Value: of.Header.GetName(), Default: of.Header.GetDefaultValue()})
		}
	}
	return out
}
