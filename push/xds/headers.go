package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	preservev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
)

// keepHeaderCase is the encoded configuration of the formatter that KeepHeaderCase returns.
var keepHeaderCase = Any(&preservev3.PreserveCaseFormatterConfig{})

// KeepHeaderCase returns the formatter that preserves the case of HTTP/1 header names, for proxies with CapHeaderCase.
// The formatter must be set in both the listener and the cluster of a request. It then also applies to the response
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/header_casing). The TypedConfig of the
// result is shared and must not be changed.
func KeepHeaderCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	formatter := &corev3.TypedExtensionConfig{
		Name: "envoy.http.stateful_header_formatters.preserve_case", TypedConfig: keepHeaderCase}
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{
		HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{StatefulFormatter: formatter}}
}
