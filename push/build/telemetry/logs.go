package telemetry

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otellogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// MeshLog stands in the place of a provider's name for the log to the mesh's accessLogFile.
const MeshLog = ""

// Names of Istio's: of the provider that is there without anybody's saying so, and of logs that name none (istio:
// pilot/pkg/model/telemetry_logging.go).
const (
	envoyProvider  = "envoy"
	standardOutput = "/dev/stdout"
	httpLogName    = "http_envoy_accesslog"
	tcpLogName     = "tcp_envoy_accesslog"
	otelLogName    = "otel_envoy_accesslog"
)

// peers are the filter states that access log services are told: who the other side is, where Istio's filters have found that out.
var peers = []string{"upstream_peer", "downstream_peer"}

// legacyPeers are those that OpenTelemetry logs name besides, of proxies before Istio 1.24.
var legacyPeers = slices.Concat(peers, []string{"wasm.upstream_peer", "wasm.upstream_peer_id", "wasm.downstream_peer", "wasm.downstream_peer_id"})

// AccessLogs are the access logs of requests and connections. caps are what the proxy is able to do.
func (s Spec) AccessLogs(mesh *meshv1.MeshConfig, caps xds.Caps) []*accesslogv3.AccessLog {
	return s.logs(mesh, caps, nil)
}

// UnmatchedLogs are those of the connections that no filter chain took (response flag NR), which no filter would log.
func (s Spec) UnmatchedLogs(mesh *meshv1.MeshConfig, caps xds.Caps) []*accesslogv3.AccessLog {
	if mesh.GetDisableEnvoyListenerLog() {
		return nil
	}
	return s.logs(mesh, caps, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}})
}

func (s Spec) logs(mesh *meshv1.MeshConfig, caps xds.Caps, filter *accesslogv3.AccessLogFilter) (all []*accesslogv3.AccessLog) {
	if s.Logs.Len() == 0 {
		if mesh.GetAccessLogFile() == "" || !caps.Has(xds.CapFileAccessLog) {
			return nil
		}
		l := accessLog("envoy.access_loggers.file", fileOfMesh(mesh, mesh.GetAccessLogFile()))
		l.Filter = filter
		return []*accesslogv3.AccessLog{l}
	}
	for _, log := range s.Logs.All() {
		l := log.draw(mesh)
		if log.Disabled || l == nil {
			continue
		}
		l.Filter = both(filter, celFilter(log.Filter))
		all = append(all, l)
	}
	return all
}

// celFilter is the filter of an expression; nil where there is none.
func celFilter(expression string) *accesslogv3.AccessLogFilter {
	if expression == "" {
		return nil
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: xds.Any(&celv3.ExpressionFilter{Expression: expression})},
		},
	}}
}

// both is a filter that lets through what both do; a filter of nil lets everything through.
func both(a, b *accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{a, b}},
	}}
}

func accessLog(name string, config proto.Message) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: xds.Any(config)}}
}

// draw is the access log without a filter; nil where the provider is for none.
func (l Log) draw(mesh *meshv1.MeshConfig) *accesslogv3.AccessLog {
	if l.Provider == MeshLog {
		return accessLog("envoy.access_loggers.file", fileOfMesh(mesh, mesh.GetAccessLogFile()))
	}
	p := Provider(mesh, l.Provider)
	switch t := p.GetProvider().(type) {
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		of := t.EnvoyFileAccessLog
		if p.GetName() == envoyProvider && of.GetLogFormat() == nil && !of.GetOmitEmptyValues() {
			return accessLog("envoy.access_loggers.file", fileOfMesh(mesh, cmp.Or(of.GetPath(), standardOutput)))
		}
		return accessLog("envoy.access_loggers.file", file(of))
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		of := t.EnvoyHttpAls
		return accessLog("envoy.access_loggers.http_grpc", &grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig:                    common(l.To, cmp.Or(of.GetLogName(), httpLogName), first(of.GetFilterStateObjectsToLog(), peers)),
			AdditionalRequestHeadersToLog:   of.GetAdditionalRequestHeadersToLog(),
			AdditionalResponseHeadersToLog:  of.GetAdditionalResponseHeadersToLog(),
			AdditionalResponseTrailersToLog: of.GetAdditionalResponseTrailersToLog(),
		})
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		of := t.EnvoyTcpAls
		return accessLog("envoy.tcp_grpc_access_log", &grpclogv3.TcpGrpcAccessLogConfig{
			CommonConfig: common(l.To, cmp.Or(of.GetLogName(), tcpLogName), first(of.GetFilterStateObjectsToLog(), peers)),
		})
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		return accessLog("envoy.access_loggers.open_telemetry", openTelemetryLog(t.EnvoyOtelAls, l.To))
	}
	return nil
}

func first(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

func common(to Service, name string, states []string) *grpclogv3.CommonGrpcAccessLogConfig {
	return &grpclogv3.CommonGrpcAccessLogConfig{
		LogName: name, GrpcService: to.grpc(), TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: states,
	}
}

// grpc is the service as a gRPC server.
func (s Service) grpc() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: s.Cluster, Authority: s.Host},
	}}
}

func openTelemetryLog(p *meshv1.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, to Service) *otellogv3.OpenTelemetryAccessLogConfig {
	body := cmp.Or(p.GetLogFormat().GetText(), textFormat)
	c := &otellogv3.OpenTelemetryAccessLogConfig{
		//lint:ignore SA1019 the fields in its place are not known to the Envoys of all versions that are served
		CommonConfig:         common(to, cmp.Or(p.GetLogName(), otelLogName), legacyPeers),
		DisableBuiltinLabels: true,
		Body:                 otlpText(body),
	}
	labels := p.GetLogFormat().GetLabels()
	if fields := labels.GetFields(); len(fields) > 0 {
		c.Attributes = &otlpv1.KeyValueList{}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			c.Attributes.Values = append(c.Attributes.Values, &otlpv1.KeyValue{Key: key, Value: otlpText(fields[key].GetStringValue())})
		}
	}
	if uses(body) || usedIn(labels) {
		c.Formatters = formatters
	}
	return c
}

func otlpText(text string) *otlpv1.AnyValue {
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: text}}
}

// file is the log of an envoyFileAccessLog.
func file(p *meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) *filelogv3.FileAccessLog {
	var format *corev3.SubstitutionFormatString
	if labels, is := p.GetLogFormat().GetLogFormat().(*meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels); is {
		if format = jsonOf(labels.Labels); len(labels.Labels.GetFields()) == 0 {
			format = jsonOf(defaultFields())
		}
	} else {
		format = textOf(p.GetLogFormat().GetText())
	}
	format.OmitEmptyValues = p.GetOmitEmptyValues()
	return logTo(cmp.Or(p.GetPath(), standardOutput), format)
}

// fileOfMesh is a log in the format of accessLogFormat and accessLogEncoding.
func fileOfMesh(mesh *meshv1.MeshConfig, path string) *filelogv3.FileAccessLog {
	if mesh.GetAccessLogEncoding() == meshv1.MeshConfig_JSON {
		return logTo(path, jsonOf(fieldsOf(mesh.GetAccessLogFormat())))
	}
	return logTo(path, textOf(mesh.GetAccessLogFormat()))
}

func logTo(path string, format *corev3.SubstitutionFormatString) *filelogv3.FileAccessLog {
	return &filelogv3.FileAccessLog{Path: path, AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format}}
}

// textOf is a format of lines; empty: Istio's default.
func textOf(format string) *corev3.SubstitutionFormatString {
	if format == "" {
		format = textFormat
	} else if !strings.HasSuffix(format, "\n") {
		format += "\n"
	}
	out := &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
		Specifier: &corev3.DataSource_InlineString{InlineString: format},
	}}}
	if uses(format) {
		out.Formatters = formatters
	}
	return out
}

func jsonOf(fields *structpb.Struct) *corev3.SubstitutionFormatString {
	out := &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: fields}, JsonFormatOptions: &corev3.JsonFormatOptions{},
	}
	if usedIn(fields) {
		out.Formatters = formatters
	}
	return out
}

// fieldsOf reads the user's JSON format; the default where there is none, or where it is no JSON object (Istio's rule).
func fieldsOf(format string) *structpb.Struct {
	var user map[string]any
	if json.Unmarshal([]byte(format), &user) == nil && user != nil {
		if s, err := structpb.NewStruct(user); err == nil {
			return s
		}
	}
	return defaultFields()
}
