package input

import "navarch.io/navarch/store/model"

// IsHTTP2 reports whether a protocol is HTTP/2 or gRPC.
func IsHTTP2(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTP2 || p == model.Protocol_PROTOCOL_GRPC
}

// IsTLS reports whether a protocol is HTTPS or TLS, with which the application itself uses TLS on its connections.
func IsTLS(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTPS || p == model.Protocol_PROTOCOL_TLS
}

// PortOf returns the first port of a service with a number; nil: the service has no such port. It ignores UDP ports.
func PortOf(svc *model.Service, number uint32) *model.ServicePort {
	for _, p := range svc.Spec.GetPorts() {
		if p.GetNumber() == number && p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
			return p
		}
	}
	return nil
}
