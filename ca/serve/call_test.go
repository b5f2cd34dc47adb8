package serve_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// A caller without a credential is refused before its message is read: in this test no message is ever sent.
// Promise: security-connections.md#bytes-headers-and-messages
func TestCallersAreKnownBeforeMessages(t *testing.T) {
	ca := servetest.Start(t, serve.Config{})
	conn := dial(t, ca, nil)
	defer conn.Close()
	for _, method := range []string{securityv1.IstioCertificateService_CreateCertificate_FullMethodName, serve.HoldersMethod} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", method, err)
		}
		cancel()
	}
}
