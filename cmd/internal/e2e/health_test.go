package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// Both gRPC addresses answer health checks of all callers. Their services are listed for callers with a credential, and
// on plain text.
func TestHealthAndReflection(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	d := start(t, "--config-dir", folder(t), "--data-dir", data)
	eventually(t, patience, d.ready)
	secure := rootsOnly(t, data)
	plain := insecure.NewCredentials()
	asked := bearer(t.Context(), token(t, data, "shop", "web"))
	for _, one := range []struct {
		name, address string
		creds         credentials.TransportCredentials
		ctx           context.Context
		reflects      codes.Code
	}{
		{"plain", d.grpc, plain, t.Context(), codes.OK},
		{"secure", d.secure, secure, t.Context(), codes.Unauthenticated},
		{"secure, a forged token", d.secure, secure, bearer(t.Context(), "e30.e30.AAAA"), codes.Unauthenticated},
		{"secure, a token", d.secure, secure, asked, codes.OK},
	} {
		conn, err := grpc.NewClient("passthrough:///"+one.address, grpc.WithTransportCredentials(one.creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, service := range []string{"", "envoy.service.discovery.v3.AggregatedDiscoveryService", "istio.v1.auth.IstioCertificateService"} {
			res, err := healthv1.NewHealthClient(conn).Check(one.ctx, &healthv1.HealthCheckRequest{Service: service})
			if err != nil || res.Status != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("%s: %q is %v %v", one.name, service, res, err)
			}
		}
		if err := listed(one.ctx, conn); status.Code(err) != one.reflects {
			t.Errorf("%s: reflection: %v, want %v", one.name, err, one.reflects)
		}
	}
}

// listed returns an error unless reflection lists and describes the service of proxies.
func listed(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	const ads = "envoy.service.discovery.v3.AggregatedDiscoveryService"
	for _, r := range []*reflectionv1.ServerReflectionRequest{
		{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}},
		{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: ads}},
	} {
		_ = stream.Send(r) // Recv says what is wrong
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		services := res.GetListServicesResponse().GetService()
		has := slices.ContainsFunc(services, func(s *reflectionv1.ServiceResponse) bool { return s.Name == ads })
		if !has && len(res.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			return fmt.Errorf("answered %v", res)
		}
	}
	return nil
}
