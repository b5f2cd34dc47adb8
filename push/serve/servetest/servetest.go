// Package servetest runs xDS servers and connects clients, for tests. It has a planner that gives all clients the same
// configuration.
//
// Owns: nothing. Servers and connections end with the test. Reads: push/serve. Never: imported by product code.
package servetest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
)

// Base has the methods of a Proxy that most tests have in common. A test's Proxy embeds Base.
type Base struct{}

// Namespace returns "n".
func (Base) Namespace() string { return "n" }

// ID returns "v".
func (Base) ID() string { return "v" }

// Confirm confirms every client. The error is always nil.
func (Base) Confirm(context.Context) error { return nil }

// Leave does nothing.
func (Base) Leave() {}

// one is a Planner that gives all clients the same set of resources. It is also the Proxy of each client.
type one struct {
	Base
	set *manifest.Set
}

func (o one) Join(context.Context, serve.Client, func(fanout.Lane)) (serve.Proxy, error) {
	return o, nil
}
func (o one) Set() *manifest.Set { return o.set }

// OneCluster returns a Planner whose clients all have one cluster with the name "c" and no body. Every node may join,
// and the configuration never changes.
func OneCluster() serve.Planner {
	set := &manifest.Set{Revision: 1}
	set.Types[xds.Cluster][manifest.Scope] = manifest.Of(&xds.Resource{Type: xds.Cluster, Name: "c", Version: "1"})
	return one{set: set}
}

// Dialed runs a server on a local port until the test ends, and returns a plain-text connection to the server. The
// connection is closed at the end of the test. On failure Dialed ends the test.
func Dialed(t *testing.T, s *serve.Server) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(serve.Options()...)
	s.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = g.Serve(serve.Listen(l)) })
	done.Go(func() { _ = s.Run(ctx) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); cancel(); done.Wait() })
	return conn
}

// ClustersRequest returns the first request of a stream. The request has the node ID "n" and asks for all clusters. The
// caller owns the result.
func ClustersRequest() *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: xds.Cluster.URL()}
}

// Subscribe opens a delta stream, sends ClustersRequest and returns the stream. The stream ends with the test. On
// failure Subscribe ends the test.
func Subscribe(t *testing.T,
	conn *grpc.ClientConn) grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse] {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err == nil {
		err = stream.Send(ClustersRequest())
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// Soon calls the given function until the function returns true. It pauses for two milliseconds between the calls. If
// this takes more than a minute, the test fails and ends. The parameter what describes the expected state in the
// failure message.
func Soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within a minute: %s", what)
		}
	}
}
