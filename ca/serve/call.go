package serve

import (
	"context"

	"google.golang.org/grpc"
	securityv1 "istio.io/api/security/v1alpha1"
)

// CertificateMethod is the gRPC method that agents call for a certificate.
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

// call describes a call with one request and one response. It is registered as a stream, which is the same on the wire:
// a stream's handler can authenticate the caller before gRPC reads the request; a unary handler cannot.
func call(name string, answer func(s *Server, ctx context.Context, read func(any) error) (any, error)) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		out, err := answer(srv.(*Server), stream.Context(), stream.RecvMsg)
		if err != nil {
			return err
		}
		return stream.SendMsg(out)
	}}
}
