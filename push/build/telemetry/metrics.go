package telemetry

import (
	"slices"
	"strconv"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// statsInbound and statsOutbound are configurations of the filter istio.stats without overrides.
var statsInbound, statsOutbound = stats(true, Metrics{}), stats(false, Metrics{})

// Stats returns the configuration of the filter istio.stats, which is equal for HTTP and TCP. It returns nil if caps,
// the capabilities of the proxy, lack the filter, and if metrics are off. Metrics are off if Metrics.Off is set.
// Without a Telemetry for metrics (Metrics.Said is false), metrics are also off if the mesh's default providers of
// metrics lack Prometheus. Callers set inbound for inbound listeners and for gateways. At such listeners, a client
// outside of the mesh can choose any Host header, so the filter does not derive the destination from that header. The
// result may be shared and is read-only.
func (s Spec) Stats(mesh *meshv1.MeshConfig, caps xds.Caps, inbound bool) *anypb.Any {
	switch m := s.Metrics; {
	case !caps.Has(xds.CapIstioStats) || m.Off || !m.Said && !countsByDefault(mesh):
		return nil
	case m.Overrides.Len() > 0 || m.Interval > 0:
		return stats(inbound, m)
	case inbound:
		return statsInbound
	}
	return statsOutbound
}

// countsByDefault reports whether a Prometheus provider is among the default providers of metrics.
func countsByDefault(mesh *meshv1.MeshConfig) bool {
	isPrometheus := func(name string) bool { return Provider(mesh, name).GetPrometheus() != nil }
	return slices.ContainsFunc(mesh.GetDefaultProviders().GetMetrics(), isPrometheus)
}

// stats encodes a configuration of the filter istio.stats as a TypedStruct, because this program's libraries lack the
// Go type of the configuration.
func stats(inbound bool, m Metrics) *anypb.Any {
	fields := map[string]any{}
	if inbound {
		fields["disable_host_header_fallback"] = true
	}
	if m.Interval > 0 {
		fields["tcp_reporting_duration"] = strconv.FormatFloat(m.Interval.Seconds(), 'f', -1, 64) + "s"
	}
	var metrics []any
	for rest := m.Overrides.All(); len(rest) > 0; {
		end := slices.IndexFunc(rest, func(o Override) bool { return o.Metric != rest[0].Metric })
		if end < 0 {
			end = len(rest)
		}
		metrics = append(metrics, metric(rest[:end]))
		rest = rest[end:]
	}
	if len(metrics) > 0 {
		fields["metrics"] = metrics
	}
	value, err := structpb.NewStruct(fields)
	if err != nil {
		value = &structpb.Struct{} // only text that is not UTF-8 fails, and stored texts are UTF-8
	}
	return xds.Any(&udpav1.TypedStruct{TypeUrl: "type.googleapis.com/stats.PluginConfig", Value: value})
}

// metric encodes a list of overrides of one metric. The list must not be empty.
func metric(of []Override) map[string]any {
	out, dimensions := map[string]any{"name": of[0].Metric}, map[string]any{}
	var removed []any
	for _, o := range of {
		switch {
		case o.Drop:
			out["drop"] = true
		case o.Tag != "" && o.Value != "":
			dimensions[o.Tag] = o.Value
		case o.Tag != "":
			removed = append(removed, o.Tag)
		}
	}
	if len(dimensions) > 0 {
		out["dimensions"] = dimensions
	}
	if len(removed) > 0 {
		out["tags_to_remove"] = removed
	}
	return out
}
