package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	preservev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
)

var keepHeaderCase = Any(&preservev3.PreserveCaseFormatterConfig{})

// KeepHeaderCase has names of HTTP/1 headers written as they were read, by proxies with CapHeaderCase: of requests where listeners and clusters have it,
// of responses too (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/header_casing).
func KeepHeaderCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{
		StatefulFormatter: &corev3.TypedExtensionConfig{Name: "envoy.http.stateful_header_formatters.preserve_case", TypedConfig: keepHeaderCase}}}
}
