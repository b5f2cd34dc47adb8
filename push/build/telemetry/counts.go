package telemetry

import (
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	statslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/push/xds"
)

// maxCounters and maxHistograms limit the statistics of one access log. Each set of label values needs one counter and
// three histograms for requests, or four counters for connections. Envoy thus counts 2,000 sets of label values for
// requests, or 500 for connections, and ignores further sets. A limit for the whole proxy would need a statistics scope
// that all listeners share (sharing_name). With a shared scope, Envoy 1.40 crashes at the end of its validate mode.
const (
	maxCounters   = 2_000
	maxHistograms = 3 * maxCounters
)

// Side is the direction and protocol of traffic at a proxy.
type Side struct {
	Inbound bool // false: outbound
	HTTP    bool // HTTP requests; false: other connections
}

// plainCounts maps each Side to its access log without overrides.
var plainCounts = func() map[Side]*accesslogv3.AccessLog {
	all := map[Side]*accesslogv3.AccessLog{}
	for _, s := range []Side{{}, {Inbound: true}, {HTTP: true}, {Inbound: true, HTTP: true}} {
		all[s] = s.counts(Metrics{})
	}
	return all
}()

// Counts returns the access log that counts the requests or connections of a Side, for a proxy that counts by access
// log (ByLog). It returns nil for other proxies, and if metrics are off. Metrics are off if Metrics.Off is set. Without
// a Telemetry for metrics (Metrics.Said is false), metrics are also off if the mesh's default providers of metrics lack
// Prometheus. Metrics.Interval has no effect. The result may be shared and is read-only.
func (s Spec) Counts(mesh *meshv1.MeshConfig, caps xds.Caps, side Side) *accesslogv3.AccessLog {
	switch m := s.Metrics; {
	case !ByLog(caps) || m.Off || !m.Said && !countsByDefault(mesh):
		return nil
	case m.Overrides.Len() > 0:
		return side.counts(m)
	}
	return plainCounts[side]
}

// Counted reports whether the access log of Counts can count a metric. The argument metric is Istio's name without
// "istio_".
func Counted(metric string) bool {
	is := func(c counted) bool { return c.name == istiometrics.Prefix+metric }
	return slices.ContainsFunc(ofRequests, is) || slices.ContainsFunc(ofConnections, is)
}

// ByLog reports whether a proxy counts metrics by access log: it has Envoy's stats access logger, and lacks the filter
// istio.stats.
func ByLog(caps xds.Caps) bool { return caps.Has(xds.CapStatsLog) && !caps.Has(xds.CapIstioStats) }

// counted is one metric of the stats access logger.
type counted struct {
	name  string
	value string                           // access log format of the number to add or record; empty: 1
	unit  statslogv3.Config_Histogram_Unit // unit of a histogram; unspecified: the metric is a counter
}

// ofRequests are the metrics of HTTP requests, and ofConnections are the metrics of other connections.
var (
	ofRequests = []counted{
		{name: istiometrics.Requests},
		{istiometrics.Duration, "%DURATION%", statslogv3.Config_Histogram_Milliseconds},
		{istiometrics.Request, "%BYTES_RECEIVED%", statslogv3.Config_Histogram_Bytes},
		{istiometrics.Response, "%BYTES_SENT%", statslogv3.Config_Histogram_Bytes},
	}
	ofConnections = []counted{
		{name: istiometrics.Opened}, {name: istiometrics.Closed},
		{name: istiometrics.Sent, value: "%BYTES_SENT%"}, {name: istiometrics.Received, value: "%BYTES_RECEIVED%"},
	}
)

// counts returns the access log for a Side. The log counts each request or connection once, at the end, even if an
// EnvoyFilter makes Envoy write log entries at other moments too.
func (s Side) counts(m Metrics) *accesslogv3.AccessLog {
	metrics, end := ofConnections, dataaccesslogv3.AccessLogType_TcpConnectionEnd
	if s.HTTP {
		metrics, end = ofRequests, dataaccesslogv3.AccessLogType_DownstreamEnd
	}
	config := &statslogv3.Config{StatsScope: &typev3.Scope{
		MaxCounters: wrapperspb.UInt32(maxCounters), MaxHistograms: wrapperspb.UInt32(maxHistograms),
	}}
	for _, c := range metrics {
		of, dropped := m.overridesOf(strings.TrimPrefix(c.name, istiometrics.Prefix))
		if dropped {
			continue
		}
		stat := &statslogv3.Config_Stat{Name: c.name, Tags: s.tags(of)}
		switch {
		case c.unit != statslogv3.Config_Histogram_Unspecified:
			config.Histograms = append(config.Histograms, &statslogv3.Config_Histogram{Stat: stat, Unit: c.unit, ValueFormat: c.value})
		case c.value == "":
			config.Counters = append(config.Counters, &statslogv3.Config_Counter{Stat: stat, ValueFixed: wrapperspb.UInt64(1)})
		default:
			config.Counters = append(config.Counters, &statslogv3.Config_Counter{Stat: stat, ValueFormat: c.value})
		}
	}
	l := accessLog("envoy.access_loggers.stats", config)
	l.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{
		LogTypeFilter: &accesslogv3.LogTypeFilter{Types: []dataaccesslogv3.AccessLogType{end}},
	}}
	return l
}

// overridesOf returns a metric's overrides that have a Tag, and whether an override drops the metric. The parameter
// metric is Istio's name without "istio_".
func (m Metrics) overridesOf(metric string) (tags []Override, dropped bool) {
	for _, o := range m.Overrides.All() {
		if o.Metric == metric {
			dropped = dropped || o.Drop
			if o.Tag != "" {
				tags = append(tags, o)
			}
		}
	}
	return tags, dropped
}

// tags returns the tags of a metric with overrides applied. push/istiometrics computes Istio's labels from the tags. An
// override whose expression Format does not support has no effect.
func (s Side) tags(overrides []Override) (all []*statslogv3.Config_Tag) {
	add := func(name, value string) { all = append(all, &statslogv3.Config_Tag{Name: name, ValueFormat: value}) }
	var removed []string
	for _, o := range overrides {
		if o.Value == "" {
			removed = append(removed, o.Tag)
		}
	}
	reporter, own, other := istiometrics.Source, istiometrics.SourcePrincipal, istiometrics.DestinationPrincipal
	local, remote := "%UPSTREAM_LOCAL_URI_SAN%", "%UPSTREAM_PEER_URI_SAN%"
	if s.Inbound {
		reporter, own, other = istiometrics.Destination, istiometrics.DestinationPrincipal, istiometrics.SourcePrincipal
		local, remote = "%DOWNSTREAM_LOCAL_URI_SAN%", "%DOWNSTREAM_PEER_URI_SAN%"
	}
	add(istiometrics.Reporter, reporter)
	add(own, local)
	add(other, remote)
	if !s.Inbound {
		add(istiometrics.Peer, "%UPSTREAM_METADATA(istio:workload)%")
	}
	add(istiometrics.Services, "%CLUSTER_METADATA(istio:services)%")
	add(istiometrics.Cluster, "%UPSTREAM_CLUSTER_RAW%")
	add(istiometrics.ResponseFlags, "%RESPONSE_FLAGS%")
	if s.HTTP {
		add(istiometrics.ResponseCode, "%RESPONSE_CODE%")
		add(istiometrics.GRPCStatus, "%GRPC_STATUS_NUMBER%")
	}
	// A removed tag stays if istiometrics computes other labels from it.
	needed := map[string]bool{istiometrics.Reporter: true, istiometrics.Peer: true, istiometrics.Services: true,
		istiometrics.Cluster: true, istiometrics.GRPCStatus: true, istiometrics.SourcePrincipal: s.Inbound}
	all = slices.DeleteFunc(all, func(t *statslogv3.Config_Tag) bool { return slices.Contains(removed, t.Name) && !needed[t.Name] })
	if len(removed) > 0 {
		add(istiometrics.Without, strings.Join(removed, ","))
	}
	for _, o := range overrides {
		if format, ok := Format(o.Value); ok {
			all = slices.DeleteFunc(all, func(t *statslogv3.Config_Tag) bool { return t.Name == o.Tag })
			add(o.Tag, format)
		}
	}
	return all
}
