package relay

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// Envoy pings the agent's socket every ten seconds, and the connection lives: an hour of pings without a stream.
func TestPingsOfEnvoyArePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		server := grpc.NewServer((&Relay{}).options()...)
		go func() { _ = server.Serve(l) }()
		connections := 0
		conn, err := grpc.NewClient("passthrough:///xds", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { connections++; return l.DialContext(ctx) }),
			grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
		if err != nil {
			t.Fatal(err)
		}
		conn.Connect()
		time.Sleep(time.Hour)
		if got := conn.GetState(); got != connectivity.Ready || connections != 1 {
			t.Errorf("%v, %d connections in an hour", got, connections)
		}
		conn.Close()
		server.Stop()
	})
}
