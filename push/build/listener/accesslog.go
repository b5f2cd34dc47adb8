package listener

import (
	"encoding/json"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	reqwithoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// textFormat is Istio's default log line
// (https://istio.io/latest/docs/tasks/observability/logs/access-log/#default-access-log-format).
const textFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% ` +
	`%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" ` +
	`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
	`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% ` +
	`%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"

// jsonFormat is Istio's default where accessLogEncoding is JSON.
var jsonFormat = map[string]string{
	"start_time":                        "%START_TIME%",
	"route_name":                        "%ROUTE_NAME%",
	"method":                            "%REQ(:METHOD)%",
	"path":                              "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
	"protocol":                          "%PROTOCOL%",
	"response_code":                     "%RESPONSE_CODE%",
	"response_flags":                    "%RESPONSE_FLAGS%",
	"response_code_details":             "%RESPONSE_CODE_DETAILS%",
	"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
	"bytes_received":                    "%BYTES_RECEIVED%",
	"bytes_sent":                        "%BYTES_SENT%",
	"duration":                          "%DURATION%",
	"upstream_service_time":             "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
	"x_forwarded_for":                   "%REQ(X-FORWARDED-FOR)%",
	"user_agent":                        "%REQ(USER-AGENT)%",
	"request_id":                        "%REQ(X-REQUEST-ID)%",
	"authority":                         "%REQ(:AUTHORITY)%",
	"upstream_host":                     "%UPSTREAM_HOST%",
	"upstream_cluster":                  "%UPSTREAM_CLUSTER_RAW%",
	"upstream_local_address":            "%UPSTREAM_LOCAL_ADDRESS%",
	"downstream_local_address":          "%DOWNSTREAM_LOCAL_ADDRESS%",
	"downstream_remote_address":         "%DOWNSTREAM_REMOTE_ADDRESS%",
	"requested_server_name":             "%REQUESTED_SERVER_NAME%",
	"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
}

var withoutQuery = xds.Any(&reqwithoutqueryv3.ReqWithoutQuery{})

// accessLog is the log of requests and connections that the mesh configuration asks for; none without accessLogFile.
func (c Common) accessLog() []*accesslogv3.AccessLog {
	if c.mesh().GetAccessLogFile() == "" || !c.Caps.Has(xds.CapFileAccessLog) {
		return nil
	}
	return []*accesslogv3.AccessLog{{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: xds.Any(&filelogv3.FileAccessLog{
			Path:            c.mesh().GetAccessLogFile(),
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: c.logFormat()},
		})},
	}}
}

// unmatchedLog logs the connections that no filter chain took (response flag NR), which no filter would log.
func (c Common) unmatchedLog() []*accesslogv3.AccessLog {
	if c.mesh().GetDisableEnvoyListenerLog() {
		return nil
	}
	logs := c.accessLog()
	for _, l := range logs {
		l.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
		}}
	}
	return logs
}

func (c Common) logFormat() *corev3.SubstitutionFormatString {
	format := c.mesh().GetAccessLogFormat()
	var formatters []*corev3.TypedExtensionConfig
	if strings.Contains(format, "%REQ_WITHOUT_QUERY") { // an operator of its own extension
		formatters = []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.req_without_query", TypedConfig: withoutQuery}}
	}
	if c.mesh().GetAccessLogEncoding() == meshv1.MeshConfig_JSON {
		return &corev3.SubstitutionFormatString{
			Format:     &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: jsonFields(format)},
			Formatters: formatters,
		}
	}
	if format == "" {
		format = textFormat
	} else if !strings.HasSuffix(format, "\n") {
		format += "\n"
	}
	return &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: format},
		}},
		Formatters: formatters,
	}
}

// jsonFields reads the user's JSON format; the default where there is none, or where it is no JSON object (Istio's rule).
func jsonFields(format string) *structpb.Struct {
	var user map[string]any
	if json.Unmarshal([]byte(format), &user) == nil && user != nil {
		if s, err := structpb.NewStruct(user); err == nil {
			return s
		}
	}
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(jsonFormat))}
	for field, operator := range jsonFormat {
		s.Fields[field] = structpb.NewStringValue(operator)
	}
	return s
}
