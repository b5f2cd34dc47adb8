package serve

import (
	"context"

	"google.golang.org/grpc"
	securityv1 "istio.io/api/security/v1alpha1"
)

// CertificateMethod is the call for a certificate, as agents name it.
const CertificateMethod = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// certificatesDesc is istio.v1.auth.IstioCertificateService.
var certificatesDesc = grpc.ServiceDesc{
	ServiceName: securityv1.IstioCertificateService_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Metadata:    securityv1.IstioCertificateService_ServiceDesc.Metadata,
	Streams: []grpc.StreamDesc{call("CreateCertificate", func(s *Server, ctx context.Context, read func(any) error) (any, error) {
		return s.certificate(ctx, func() (*securityv1.IstioCertificateRequest, error) {
			r := &securityv1.IstioCertificateRequest{}
			return r, read(r)
		})
	})},
}

// call is a call of one message and one answer. It is registered as a stream, which is the same on the wire: gRPC reads the message
// of a unary method before its handler can say who calls, and that of a stream when it is asked to.
func call(name string, answer func(s *Server, ctx context.Context, read func(any) error) (any, error)) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		out, err := answer(srv.(*Server), stream.Context(), stream.RecvMsg)
		if err != nil {
			return err
		}
		return stream.SendMsg(out)
	}}
}
