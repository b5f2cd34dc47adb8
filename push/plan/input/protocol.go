package input

import "navarch.io/navarch/store/model"

// IsHTTP2 reports whether a protocol is HTTP/2 or gRPC.
func IsHTTP2(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTP2 || p == model.Protocol_PROTOCOL_GRPC
}

// IsTLS reports whether a protocol is HTTPS or TLS. On connections of these protocols the application itself uses TLS.
func IsTLS(p model.Protocol) bool {
	return p == model.Protocol_PROTOCOL_HTTPS || p == model.Protocol_PROTOCOL_TLS
}

// PortOf returns the first port of a service with the given number, or nil if there is no such port. It ignores UDP
// ports.
func PortOf(svc *model.Service, number uint32) *model.ServicePort {
	for _, p := range svc.Spec.GetPorts() {
		if p.GetNumber() == number && p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
			return p
		}
	}
	return nil
}
