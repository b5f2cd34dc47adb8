package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/test/bufconn"

	"navarch.io/navarch/push/envoytest"
)

// Envoy pings the agent's socket every ten seconds, and the connection lives: an hour of pings without a stream.
func TestPingsOfEnvoyArePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		server := grpc.NewServer((&Relay{}).options()...)
		go func() { _ = server.Serve(l) }()
		conn, connections := envoytest.Pinging(t, l)
		time.Sleep(time.Hour)
		if got := conn.GetState(); got != connectivity.Ready || *connections != 1 {
			t.Errorf("%v, %d connections in an hour", got, *connections)
		}
		conn.Close()
		server.Stop()
	})
}
