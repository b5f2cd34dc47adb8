package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"navarch.io/navarch/ca/attest"
)

// watched returns a client of the health service of a server with xDS, whose readiness the test sets.
func watched(t *testing.T) (healthv1.HealthClient, *Health, *atomic.Bool) {
	t.Helper()
	ready := &atomic.Bool{}
	h := New(func() error {
		if !ready.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	l, server := bufconn.Listen(1<<20), grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, discoveryv3.UnimplementedAggregatedDiscoveryServiceServer{})
	h.Register(server, func(context.Context) (attest.Caller, error) { return attest.Caller{}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = server.Serve(l) }()
	go func() { _ = h.Run(ctx) }()
	conn, err := grpc.NewClient("passthrough:///health", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop(); cancel() })
	return healthv1.NewHealthClient(conn), h, ready
}

const adsService = "envoy.service.discovery.v3.AggregatedDiscoveryService"

// The health service agrees with /ready: for the server and each of its services, on request and by a stream.
func TestHealthFollowsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, h, ready := watched(t)
		check := func(service string) healthv1.HealthCheckResponse_ServingStatus {
			t.Helper()
			res, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			return res.Status
		}
		ctx, leave := context.WithCancel(t.Context())
		watch := map[string]grpc.ServerStreamingClient[healthv1.HealthCheckResponse]{}
		for _, service := range []string{"", adsService, "nobody"} {
			stream, err := client.Watch(ctx, &healthv1.HealthCheckRequest{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			watch[service] = stream
		}
		next := func(service string) healthv1.HealthCheckResponse_ServingStatus {
			t.Helper()
			res, err := watch[service].Recv()
			if err != nil {
				t.Fatal(err)
			}
			return res.Status
		}
		if got := next("nobody"); got != healthv1.HealthCheckResponse_SERVICE_UNKNOWN {
			t.Errorf("a service that is not there: %v", got)
		}
		for i, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_NOT_SERVING, healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING} {
			ready.Store(i == 1)
			for _, service := range []string{"", adsService} {
				if got := check(service); got != want {
					t.Errorf("check %q: %v, want %v", service, got, want)
				}
				if got := next(service); got != want {
					t.Errorf("watch %q: %v, want %v", service, got, want)
				}
			}
		}
		for service, want := range map[string]codes.Code{"nobody": codes.NotFound, strings.Repeat("s", maxServiceName+1): codes.InvalidArgument} {
			if _, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service}); status.Code(err) != want {
				t.Errorf("check %.10q: %v, want %v", service, err, want)
			}
		}
		leave()
		synctest.Wait()
		if h.total != 0 || len(h.hosts) != 0 {
			t.Errorf("%d streams of %v are held after their end", h.total, h.hosts)
		}
	})
}

// A client that opens watches without end occupies a few places and leaves those of other hosts; Check is always
// answered, and a freed place can be used again.
func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, h, _ := watched(t)
		ctx, leave := context.WithCancel(t.Context())
		open := func() error {
			stream, err := client.Watch(ctx, &healthv1.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		for i := range 2 * maxHostWatches {
			if err := open(); (err == nil) != (i < maxHostWatches) || err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("stream %d of one host: %v", i, err)
			}
		}
		long, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("s", maxServiceName+1)})
		if err == nil {
			_, err = long.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a long name: %v", err)
		}
		if _, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		leave()
		synctest.Wait()
		ctx = t.Context()
		if err := open(); err != nil {
			t.Errorf("after the others have gone: %v", err)
		}
		let := 0
		for host := range 2 * maxWatches {
			if _, err := h.enter(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("10.1.%d.%d", host/200, host%200)), Port: host}})); err == nil {
				let++
			}
		}
		if let != maxWatches-1 { // one is open already
			t.Errorf("%d streams of distinct hosts, want %d", let, maxWatches-1)
		}
		time.Sleep(time.Second)
	})
}
