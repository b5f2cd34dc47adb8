package input

import (
	"strings"

	"navarch.io/navarch/store/model"
)

// IsHTTP says whether Envoy handles a protocol as HTTP of any version.
func IsHTTP(p model.Protocol) bool {
	switch p {
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC, model.Protocol_PROTOCOL_GRPC_WEB:
		return true
	default:
		return false
	}
}

// IsHTTP2 says whether a protocol is HTTP/2.
func IsHTTP2(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTP2 || p == model.Protocol_PROTOCOL_GRPC
}

// IsTLS says whether connections begin with TLS of the application.
func IsTLS(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTPS || p == model.Protocol_PROTOCOL_TLS
}

// ParseProtocol reads the protocol of a Sidecar's port
// (https://istio.io/latest/docs/reference/config/networking/sidecar/#SidecarPort); false where it is unknown.
func ParseProtocol(name string) (model.Protocol, bool) {
	switch strings.ToUpper(name) {
	case "":
		return model.Protocol_PROTOCOL_AUTO, true
	case "HTTP":
		return model.Protocol_PROTOCOL_HTTP, true
	case "HTTP2":
		return model.Protocol_PROTOCOL_HTTP2, true
	case "GRPC":
		return model.Protocol_PROTOCOL_GRPC, true
	case "GRPC-WEB", "GRPC_WEB":
		return model.Protocol_PROTOCOL_GRPC_WEB, true
	case "HTTPS":
		return model.Protocol_PROTOCOL_HTTPS, true
	case "TLS":
		return model.Protocol_PROTOCOL_TLS, true
	case "MONGO":
		return model.Protocol_PROTOCOL_MONGO, true
	case "TCP", "REDIS", "MYSQL":
		return model.Protocol_PROTOCOL_TCP, true
	}
	return model.Protocol_PROTOCOL_AUTO, false
}

// PortOf finds a port of a service by number; nil: it has none (UDP does not count).
func PortOf(svc *model.Service, number uint32) *model.ServicePort {
	for _, p := range svc.Spec.GetPorts() {
		if p.GetNumber() == number && p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
			return p
		}
	}
	return nil
}

// HostsOf are the hosts that a record is about.
func HostsOf(r model.Record) []string {
	switch t := r.(type) {
	case *model.Service:
		return t.Spec.GetHosts()
	case *model.Endpoints:
		return t.Spec.GetHosts()
	case *model.VirtualService:
		return t.Spec.GetHosts()
	case *model.DestinationRule:
		return []string{t.Spec.GetHost()}
	}
	return nil
}
