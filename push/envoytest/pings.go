package envoytest

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// Pinging returns a gRPC client of the server at l that sends a keepalive ping after ten seconds without data from the
// server. The client pings with and without streams, as Envoy and agents do. It starts to connect at once. *connections
// counts its attempts to connect. Pinging is for tests in a bubble of testing/synctest, where *connections may be read
// while the bubble is blocked. The caller must close the client. If the client cannot be made, the test ends with a
// failure.
func Pinging(t testing.TB, l *bufconn.Listener) (conn *grpc.ClientConn, connections *int) {
	t.Helper()
	connections = new(int)
	conn, err := grpc.NewClient("passthrough:///pinged", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			*connections++
			return l.DialContext(ctx)
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		t.Fatal(err)
	}
	conn.Connect()
	return conn, connections
}
