package serve

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"
)

// RegisterPlain registers a certificate service that refuses all requests, for a gRPC server without TLS. If
// Authorities.Current fails, requests fail with Unavailable, and the status contains the reason. All other requests
// fail with FailedPrecondition. Without this service, agents would receive Unimplemented, as from a server of another
// kind.
func RegisterPlain(r grpc.ServiceRegistrar, a Authorities) {
	securityv1.RegisterIstioCertificateServiceServer(r, plain{authorities: a})
}

type plain struct {
	securityv1.UnimplementedIstioCertificateServiceServer
	authorities Authorities
}

// CreateCertificate implements istio.v1.auth.IstioCertificateService, as RegisterPlain describes. It always fails.
func (p plain) CreateCertificate(context.Context, *securityv1.IstioCertificateRequest) (*securityv1.IstioCertificateResponse, error) {
	if _, err := p.authorities.Current(); err != nil {
		return nil, status.Errorf(codes.Unavailable, "this replica cannot sign: %v", err)
	}
	return nil, status.Error(codes.FailedPrecondition, "certificates are signed over TLS: connect to the secure address (15012)")
}
