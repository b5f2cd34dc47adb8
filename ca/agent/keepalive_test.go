package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/test/bufconn"

	"navarch.io/navarch/push/envoytest"
)

// Envoy pings its SDS server every ten seconds, with a stream and without one, and the connection lives: an hour of
// pings, all on one connection and one stream.
func TestPingsOfEnvoyArePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		h := newHub(slog.New(slog.DiscardHandler), func([]string) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.serve(ctx, l) }()
		conn, connections := envoytest.Pinging(t, l)
		time.Sleep(time.Hour)
		stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).DeltaSecrets(ctx)
		if err == nil {
			err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{certificateName}})
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h.set(&secret{name: certificateName, version: "1"})
		if res, err := stream.Recv(); err != nil || len(res.Resources) != 1 {
			t.Errorf("after an hour: %v %v", res, err)
		}
		if *connections != 1 {
			t.Errorf("%d connections in two hours", *connections)
		}
		conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
