package e2e

import (
	"context"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/xds"
)

// follow runs a client of all clusters and listeners that acknowledges all responses, until the test ends. It returns
// once the client has the first of both.
func follow(t *testing.T, d *daemon) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
		conn.Close()
	})
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		close(done)
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		defer close(done)
		err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Cluster.URL()})
		if err == nil {
			err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()})
		}
		for n := 1; err == nil; n++ {
			var res *discoveryv3.DeltaDiscoveryResponse
			if res, err = stream.Recv(); err == nil {
				err = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce})
			}
			if n == 2 {
				first <- err
			}
		}
		select {
		case first <- err:
		default:
		}
	}()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}
