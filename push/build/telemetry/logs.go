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

// MeshLog is the value of Log.Provider for an access log to the mesh's accessLogFile.
const MeshLog = ""

// These are Istio's names of the built-in provider and its file, and Istio's default log names (istio:
// pilot/pkg/model/telemetry_logging.go).
const (
	envoyProvider  = "envoy"
	standardOutput = "/dev/stdout"
	httpLogName    = "http_envoy_accesslog"
	tcpLogName     = "tcp_envoy_accesslog"
	otelLogName    = "otel_envoy_accesslog"
)

// peerStates are the filter states that Envoy sends to access log services. Istio's filters store the peer's workload
// in them.
var peerStates = []string{"upstream_peer", "downstream_peer"}

// legacyPeers are the filter states that Envoy sends in OpenTelemetry logs. They include the names that proxies before
// Istio 1.24 use.
var legacyPeers = slices.Concat(peerStates,
	[]string{"wasm.upstream_peer", "wasm.upstream_peer_id", "wasm.downstream_peer", "wasm.downstream_peer_id"})

// AccessLogs returns the access logs of requests and connections, in the order of Spec.Logs. Without access logs, the
// result is nil. A log that is disabled, or whose provider is unknown or not for access logs, is left out. If Spec.Logs
// is empty, the result is the log to the mesh's accessLogFile. That log is left out if the mesh has no such file, or if
// caps, the capabilities of the proxy, lack file logs. If Spec.Logs is not empty, caps has no effect. The caller owns
// the result.
func (s Spec) AccessLogs(mesh *meshv1.MeshConfig, caps xds.Caps) []*accesslogv3.AccessLog {
	return s.logs(mesh, caps, nil)
}

// UnmatchedLogs returns the access logs of connections that match no filter chain (response flag NR). The listener
// itself writes these logs, because no filter sees such connections. The result has the logs of AccessLogs, restricted
// to entries with the flag. It is nil if the mesh disables the listener log (disableEnvoyListenerLog), or if AccessLogs
// returns nil. The elements may share one filter message and are read-only.
func (s Spec) UnmatchedLogs(mesh *meshv1.MeshConfig, caps xds.Caps) []*accesslogv3.AccessLog {
	if mesh.GetDisableEnvoyListenerLog() {
		return nil
	}
	return s.logs(mesh, caps, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}})
}

// logs returns the access logs, restricted to the log entries that filter matches; a nil filter matches every entry.
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
		l := log.encode(mesh)
		if log.Disabled || l == nil {
			continue
		}
		l.Filter = andFilter(filter, celFilter(log.Filter))
		all = append(all, l)
	}
	return all
}

// celFilter returns the log filter of a CEL expression; nil for an empty expression.
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

// andFilter returns a filter that matches if both filters match; a nil filter always matches.
func andFilter(a, b *accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{a, b}},
	}}
}

// accessLog returns an access log with a configuration.
func accessLog(name string, config proto.Message) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: xds.Any(config)}}
}

// encode returns the Envoy access log of l, without a filter. The result is nil if the provider is unknown or not for
// access logs.
func (l Log) encode(mesh *meshv1.MeshConfig) *accesslogv3.AccessLog {
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
		return accessLog("envoy.access_loggers.file", fileLog(of))
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		of := t.EnvoyHttpAls
		return accessLog("envoy.access_loggers.http_grpc", &grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig: commonConfig(l.To, cmp.Or(of.GetLogName(), httpLogName),
				firstNonEmpty(of.GetFilterStateObjectsToLog(), peerStates)),
			AdditionalRequestHeadersToLog:   of.GetAdditionalRequestHeadersToLog(),
			AdditionalResponseHeadersToLog:  of.GetAdditionalResponseHeadersToLog(),
			AdditionalResponseTrailersToLog: of.GetAdditionalResponseTrailersToLog(),
		})
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		of := t.EnvoyTcpAls
		return accessLog("envoy.tcp_grpc_access_log", &grpclogv3.TcpGrpcAccessLogConfig{
			CommonConfig: commonConfig(l.To, cmp.Or(of.GetLogName(), tcpLogName),
				firstNonEmpty(of.GetFilterStateObjectsToLog(), peerStates)),
		})
	case *meshv1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		return accessLog("envoy.access_loggers.open_telemetry", openTelemetryLog(t.EnvoyOtelAls, l.To))
	}
	return nil
}

// firstNonEmpty returns a, or b if a is empty.
func firstNonEmpty(a, b []string) []string {
	if len(a) > 0 {
		return a
	}
	return b
}

// commonConfig returns the configuration that all access logs over gRPC have. states are the filter states to send.
func commonConfig(to Service, name string, states []string) *grpclogv3.CommonGrpcAccessLogConfig {
	return &grpclogv3.CommonGrpcAccessLogConfig{
		LogName: name, GrpcService: to.grpcService(), TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: states,
	}
}

// grpcService returns the service as the target of gRPC calls.
func (s Service) grpcService() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: s.Cluster, Authority: s.Host},
	}}
}

// openTelemetryLog returns the configuration of an OpenTelemetry access log that is sent to a service.
func openTelemetryLog(
	p *meshv1.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, to Service,
) *otellogv3.OpenTelemetryAccessLogConfig {
	body := cmp.Or(p.GetLogFormat().GetText(), textFormat)
	c := &otellogv3.OpenTelemetryAccessLogConfig{
		//lint:ignore SA1019 not all supported versions of Envoy have the fields that replace it
		CommonConfig:         commonConfig(to, cmp.Or(p.GetLogName(), otelLogName), legacyPeers),
		DisableBuiltinLabels: true,
		Body:                 otlpText(body),
	}
	labels := p.GetLogFormat().GetLabels()
	if fields := labels.GetFields(); len(fields) > 0 {
		c.Attributes = &otlpv1.KeyValueList{}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			value := otlpText(fields[key].GetStringValue())
			c.Attributes.Values = append(c.Attributes.Values, &otlpv1.KeyValue{Key: key, Value: value})
		}
	}
	if usesFormatter(body) || fieldsUseFormatter(labels) {
		c.Formatters = formatters
	}
	return c
}

// otlpText returns a text as a value of OTLP.
func otlpText(text string) *otlpv1.AnyValue {
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: text}}
}

// fileLog returns the access log of a provider envoyFileAccessLog.
func fileLog(p *meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) *filelogv3.FileAccessLog {
	var format *corev3.SubstitutionFormatString
	type asLabels = meshv1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels
	if labels, is := p.GetLogFormat().GetLogFormat().(*asLabels); is {
		if format = jsonOf(labels.Labels); len(labels.Labels.GetFields()) == 0 {
			format = jsonOf(defaultFields())
		}
	} else {
		format = textOf(p.GetLogFormat().GetText())
	}
	format.OmitEmptyValues = p.GetOmitEmptyValues()
	return fileLogTo(cmp.Or(p.GetPath(), standardOutput), format)
}

// fileOfMesh returns an access log to a file in the format of the mesh's accessLogFormat and accessLogEncoding.
func fileOfMesh(mesh *meshv1.MeshConfig, path string) *filelogv3.FileAccessLog {
	if mesh.GetAccessLogEncoding() == meshv1.MeshConfig_JSON {
		return fileLogTo(path, jsonOf(fieldsOf(mesh.GetAccessLogFormat())))
	}
	return fileLogTo(path, textOf(mesh.GetAccessLogFormat()))
}

// fileLogTo returns an access log to a file.
func fileLogTo(path string, format *corev3.SubstitutionFormatString) *filelogv3.FileAccessLog {
	return &filelogv3.FileAccessLog{Path: path, AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format}}
}

// textOf returns a text format, which ends each entry with a newline. An empty format means Istio's default.
func textOf(format string) *corev3.SubstitutionFormatString {
	if format == "" {
		format = textFormat
	} else if !strings.HasSuffix(format, "\n") {
		format += "\n"
	}
	out := &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
		Specifier: &corev3.DataSource_InlineString{InlineString: format},
	}}}
	if usesFormatter(format) {
		out.Formatters = formatters
	}
	return out
}

// jsonOf returns a JSON format.
func jsonOf(fields *structpb.Struct) *corev3.SubstitutionFormatString {
	out := &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: fields}, JsonFormatOptions: &corev3.JsonFormatOptions{},
	}
	if fieldsUseFormatter(fields) {
		out.Formatters = formatters
	}
	return out
}

// fieldsOf parses the user's JSON format. For an empty format, or one that is not a JSON object, it returns the default
// fields, as Istio does.
func fieldsOf(format string) *structpb.Struct {
	var user map[string]any
	if json.Unmarshal([]byte(format), &user) == nil && user != nil {
		if s, err := structpb.NewStruct(user); err == nil {
			return s
		}
	}
	return defaultFields()
}
