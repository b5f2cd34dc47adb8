package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// SIGTERM ends a process that serves streams and is being asked for a long profile: neither is waited for, though it might
// be for ten minutes.
func TestOrderlyStop(t *testing.T) {
	d := start(t, "--config-dir", folder(t), "--data-dir", t.TempDir(), "--shutdown-duration", "10m")
	eventually(t, patience, d.ready)
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	slow, err := net.Dial("tcp", d.http)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "GET /debug/pprof/profile?seconds=600 HTTP/1.1\r\nHost: x\r\n\r\n")

	d.stop(t)
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	if !strings.Contains(d.log.String(), "navarchd stopped") {
		t.Error("it did not say that it stopped")
	}
}

// A leader that is asked to stop hands over at once: nobody waits for its lease, which is longer than this test waits.
func TestLeaderHandsOver(t *testing.T) {
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := folder(t)
	first := start(t, "--roles=ingest", "--config-dir", dir, store, "--leader-lease", "1h")
	eventually(t, patience, first.leading)
	second := start(t, "--roles=ingest", "--config-dir", dir, store, "--leader-lease", "1h")
	eventually(t, patience, second.ready)
	first.stop(t)
	eventually(t, patience, second.leading)
}

// A process has what its roles need and nothing more.
func TestRolesAreApart(t *testing.T) {
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	ingest := start(t, "--roles=ingest", "--config-dir", folder(t), store)
	eventually(t, patience, ingest.leading)
	if conn, err := net.Dial("tcp", ingest.grpc); err == nil {
		conn.Close()
		t.Error("a process without role xds serves xDS")
	}
	if page, err := get(ingest.http, "/debug/syncz"); err != nil || strings.TrimSpace(page) != "[]" {
		t.Errorf("/debug/syncz: %v %s", err, page)
	}
	replica := start(t, "--roles=xds", store)
	eventually(t, patience, serves(t, replica, 1))
	if replica.leading() == nil {
		t.Error("a process without role ingest leads")
	}
}
