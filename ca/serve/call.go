package serve

import (
	"context"

	"google.golang.org/grpc"
	securityv1 "istio.io/api/security/v1alpha1"
)

// CertificateMethod is the full gRPC name of the method by which Istio's agents request certificates.
const CertificateMethod = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// certificatesDesc describes istio.v1.auth.IstioCertificateService.
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

// call describes a gRPC method with one request and one response. It describes the method as a stream, which looks the
// same on the wire as a unary method. The handler of a stream can authenticate the caller before gRPC reads the
// request. The handler of a unary method cannot.
func call(name string, answer func(s *Server, ctx context.Context, read func(any) error) (any, error)) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		out, err := answer(srv.(*Server), stream.Context(), stream.RecvMsg)
		if err != nil {
			return err
		}
		return stream.SendMsg(out)
	}}
}
