package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	build "navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// metricNames maps Istio's metrics to their names in the filter istio.stats (istio: pilot/pkg/model/telemetry.go,
// metricToPrometheusMetric).
var metricNames = map[telemetryv1.MetricSelector_IstioMetric]string{
	telemetryv1.MetricSelector_REQUEST_COUNT:          "requests_total",
	telemetryv1.MetricSelector_REQUEST_DURATION:       "request_duration_milliseconds",
	telemetryv1.MetricSelector_REQUEST_SIZE:           "request_bytes",
	telemetryv1.MetricSelector_RESPONSE_SIZE:          "response_bytes",
	telemetryv1.MetricSelector_TCP_OPENED_CONNECTIONS: "tcp_connections_opened_total",
	telemetryv1.MetricSelector_TCP_CLOSED_CONNECTIONS: "tcp_connections_closed_total",
	telemetryv1.MetricSelector_TCP_SENT_BYTES:         "tcp_sent_bytes_total",
	telemetryv1.MetricSelector_TCP_RECEIVED_BYTES:     "tcp_received_bytes_total",
	telemetryv1.MetricSelector_GRPC_REQUEST_MESSAGES:  "request_messages_total",
	telemetryv1.MetricSelector_GRPC_RESPONSE_MESSAGES: "response_messages_total",
}

// metricSettings contains the merged settings of Telemetries for one provider of metrics.
type metricSettings struct {
	disabled bool                                 // all metrics are disabled
	drop     map[string]bool                      // by name of the metric; a metric with the value true is not counted
	tags     map[string]map[string]build.Override // by metric and tag
	interval time.Duration
}

// metrics decides the metrics of the filter istio.stats. For proxies without this filter, Envoy's stats access logger
// counts the metrics instead. An entry without providers applies to the providers of the last earlier entry that names
// providers, or else to defaultProviders. Later overrides take precedence over earlier overrides (istio:
// pilot/pkg/model/telemetry.go, mergeMetrics).
func (d *decision) metrics(all []*model.Telemetry) build.Metrics {
	before := d.Mesh.Spec.GetDefaultProviders().GetMetrics()
	counting, said := before, false
	for _, t := range all {
		for _, m := range t.Spec.GetMetrics() {
			said = true
			if len(m.GetProviders()) > 0 {
				counting = namesOf(m.GetProviders())
			}
		}
	}
	if !said {
		return build.Metrics{}
	}
	by := map[string]*metricSettings{}
	for _, t := range all {
		for i, m := range t.Spec.GetMetrics() {
			if len(m.GetProviders()) > 0 {
				before = namesOf(m.GetProviders())
			}
			if len(before) == 0 {
				d.unprovided(place{t.Key, fmt.Sprintf("spec.metrics[%d]", i)}, "metrics", "")
			}
			for _, name := range before {
				if !slices.Contains(counting, name) || !d.counts(name, place{t.Key, fmt.Sprintf("spec.metrics[%d]", i)}) {
					continue
				}
				if by[name] == nil {
					by[name] = &metricSettings{drop: map[string]bool{}, tags: map[string]map[string]build.Override{}}
				}
				by[name].merge(d, m, place{t.Key, fmt.Sprintf("spec.metrics[%d]", i)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) { // one filter counts for all providers: the first enabled one decides
		if c := by[name]; !c.disabled {
			return build.Metrics{Said: true, Overrides: overrides.List(c.overrides()...), Interval: c.interval}
		}
	}
	return build.Metrics{Said: true, Off: true}
}

// counts reports whether a provider is Prometheus. For any other known provider it adds a problem, because metrics for
// that provider are not counted. For Prometheus it adds a problem if some proxies cannot count Istio's metrics.
func (d *decision) counts(name string, at place) bool {
	p := build.Provider(d.Mesh.Spec, name)
	switch {
	case p == nil: // store/normal reports it
	case p.GetPrometheus() == nil:
		d.warn(at, problem.NotSupported, "provider %s: this version sends no metrics to this kind of provider", name)
	case !d.Caps.Has(xds.CapIstioStats) && !d.Caps.Has(xds.CapStatsLog):
		d.warn(at, problem.NotSupported, "some proxies of namespace %s have neither the filter istio.stats nor the stats "+
			"access logger of Envoy 1.39: they count no requests by workload", d.Namespace)
	}
	return p.GetPrometheus() != nil
}

// merge adds one entry of a Telemetry to the merged settings c. The entry's settings override the settings of earlier
// entries.
func (c *metricSettings) merge(d *decision, m *telemetryv1.Metrics, at place) {
	if m.GetReportingInterval() != nil {
		c.interval = m.GetReportingInterval().AsDuration()
		if build.ByLog(d.Caps) {
			d.logCannot(place{at.key, at.field + ".reportingInterval"}, "connections are counted when they end")
		}
	}
	for i, o := range m.GetOverrides() {
		if !d.applies(o.GetMatch().GetMode()) {
			continue
		}
		if _, stated := o.GetMatch().GetMetricMatch().(*telemetryv1.MetricSelector_Metric); stated && o.GetDisabled().GetValue() &&
			o.GetMatch().GetMetric() == telemetryv1.MetricSelector_ALL_METRICS {
			c.disabled = true
			continue
		}
		c.disabled = false // any later override enables the metrics again
		uncarried := d.uncarried(o, place{at.key, fmt.Sprintf("%s.overrides[%d]", at.field, i)})
		for _, metric := range metricsOf(o.GetMatch()) {
			if o.GetDisabled() != nil {
				c.drop[metric] = o.GetDisabled().GetValue()
			}
			if c.tags[metric] == nil {
				c.tags[metric] = map[string]build.Override{}
			}
			for tag, of := range o.GetTagOverrides() {
				if uncarried[tag] {
					continue
				}
				now := build.Override{Metric: metric, Tag: tag}
				if of.GetOperation() == telemetryv1.MetricsOverrides_TagOverride_UPSERT {
					now.Value = of.GetValue()
				}
				c.tags[metric][tag] = now
			}
		}
	}
}

// logCannot adds a problem about a setting that Envoy's stats access logger does not support.
func (d *decision) logCannot(at place, format string, args ...any) {
	format = "some proxies of namespace %s count by Envoy's stats access logger: " + format
	d.warn(at, problem.NotSupported, format, append([]any{d.Namespace}, args...)...)
}

// uncarried adds problems for the parts of an override that Envoy's stats access logger does not support. It returns
// the tags whose overrides are not supported. For proxies with the filter istio.stats, it does nothing and returns nil.
func (d *decision) uncarried(o *telemetryv1.MetricsOverrides, at place) (tags map[string]bool) {
	if !build.ByLog(d.Caps) {
		return nil
	}
	if metrics := metricsOf(o.GetMatch()); len(metrics) == 1 && !build.Counted(metrics[0]) && !o.GetDisabled().GetValue() {
		d.logCannot(at, "metric %s is not supported", metrics[0])
	}
	for _, tag := range slices.Sorted(maps.Keys(o.GetTagOverrides())) {
		of := o.GetTagOverrides()[tag]
		_, ok := build.Format(of.GetValue())
		if of.GetOperation() != telemetryv1.MetricsOverrides_TagOverride_UPSERT || ok && !istiometrics.Fixed(tag) {
			continue
		}
		if tags == nil {
			tags = map[string]bool{}
		}
		tags[tag] = true
		d.logCannot(place{at.key, at.field + ".tagOverrides[" + tag + "]"}, "the override of the tag has no effect: "+
			"a value must be a text, or one attribute that Envoy has itself; reporter, source_principal and "+
			"grpc_response_status cannot change, because other tags depend on these")
	}
	return tags
}

// metricsOf returns the names of the metrics that an override selects.
func metricsOf(m *telemetryv1.MetricSelector) []string {
	if custom, is := m.GetMetricMatch().(*telemetryv1.MetricSelector_CustomMetric); is {
		return []string{custom.CustomMetric}
	}
	if name := metricNames[m.GetMetric()]; name != "" {
		return []string{name}
	}
	return slices.Collect(maps.Values(metricNames))
}

// overrides returns the overrides of all metrics, sorted by metric and tag.
func (c *metricSettings) overrides() (out []build.Override) {
	for metric, tags := range c.tags {
		out = append(out, build.Override{Metric: metric, Drop: c.drop[metric]})
		out = slices.AppendSeq(out, maps.Values(tags))
	}
	slices.SortFunc(out, func(a, b build.Override) int {
		return cmp.Or(strings.Compare(a.Metric, b.Metric), strings.Compare(a.Tag, b.Tag))
	})
	return out
}
