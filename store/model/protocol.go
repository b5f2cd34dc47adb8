package model

import "strings"

// ParseProtocol parses the protocol of a port of a Sidecar or Gateway, in upper or lower case. The empty text is
// PROTOCOL_AUTO. HTTP_PROXY is PROTOCOL_HTTP, and REDIS and MYSQL are PROTOCOL_TCP. For any other protocol, such as
// UDP, it returns PROTOCOL_AUTO and false. Source:
// https://istio.io/latest/docs/reference/config/networking/gateway/#Port.
func ParseProtocol(name string) (Protocol, bool) {
	switch strings.ToUpper(name) {
	case "":
		return Protocol_PROTOCOL_AUTO, true
	case "HTTP", "HTTP_PROXY":
		return Protocol_PROTOCOL_HTTP, true
	case "HTTP2":
		return Protocol_PROTOCOL_HTTP2, true
	case "GRPC":
		return Protocol_PROTOCOL_GRPC, true
	case "GRPC-WEB", "GRPC_WEB":
		return Protocol_PROTOCOL_GRPC_WEB, true
	case "HTTPS":
		return Protocol_PROTOCOL_HTTPS, true
	case "TLS":
		return Protocol_PROTOCOL_TLS, true
	case "MONGO":
		return Protocol_PROTOCOL_MONGO, true
	case "TCP", "REDIS", "MYSQL":
		return Protocol_PROTOCOL_TCP, true
	}
	return Protocol_PROTOCOL_AUTO, false
}

// IsHTTP reports whether Envoy always handles the protocol as HTTP of any version. It is false for PROTOCOL_AUTO.
func (p Protocol) IsHTTP() bool {
	return p == Protocol_PROTOCOL_HTTP || p == Protocol_PROTOCOL_HTTP2 || p == Protocol_PROTOCOL_GRPC || p == Protocol_PROTOCOL_GRPC_WEB
}
