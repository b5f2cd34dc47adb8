package telemetry

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	reqwithoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// textFormat is Istio's default log line
// (https://istio.io/latest/docs/tasks/observability/logs/access-log/#default-access-log-format).
const textFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% ` +
	`%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" ` +
	`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
	`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% ` +
	`%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"

// jsonFormat is Istio's default for accessLogEncoding JSON. It maps each field to its operator.
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

// formatters declares the operator REQ_WITHOUT_QUERY. The operator is an extension of Envoy, so each configuration that
// uses the operator must declare it.
var formatters = []*corev3.TypedExtensionConfig{{
	Name: "envoy.formatter.req_without_query", TypedConfig: xds.Any(&reqwithoutqueryv3.ReqWithoutQuery{}),
}}

// usesFormatter reports whether a format uses the operator that formatters declares.
func usesFormatter(format string) bool { return strings.Contains(format, "%REQ_WITHOUT_QUERY") }

// fieldsUseFormatter reports whether a field of a JSON format uses the operator that formatters declares.
func fieldsUseFormatter(fields *structpb.Struct) bool {
	for _, value := range fields.GetFields() {
		if usesFormatter(value.GetStringValue()) {
			return true
		}
	}
	return false
}

// defaultFields returns jsonFormat as a message, which belongs to the caller.
func defaultFields() *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(jsonFormat))}
	for field, operator := range jsonFormat {
		s.Fields[field] = structpb.NewStringValue(operator)
	}
	return s
}
