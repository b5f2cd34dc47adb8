package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// wiretap reads along what a server sends on a connection, and keeps its GOAWAY frames.
type wiretap struct {
	net.Conn
	copy  *io.PipeWriter
	ended chan []http2.ErrCode // told once, at the connection's end: their codes
}

func tap(c net.Conn) *wiretap {
	r, w := io.Pipe()
	tapped := &wiretap{Conn: c, copy: w, ended: make(chan []http2.ErrCode, 1)}
	go func() {
		var codes []http2.ErrCode
		frames := http2.NewFramer(io.Discard, r)
		for {
			frame, err := frames.ReadFrame()
			if err != nil {
				r.CloseWithError(err)
				tapped.ended <- codes
				return
			}
			if goAway, is := frame.(*http2.GoAwayFrame); is {
				codes = append(codes, goAway.ErrCode)
			}
		}
	}()
	return tapped
}

func (w *wiretap) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	_, _ = w.copy.Write(p[:n]) // fails once the reader has ended
	if err != nil {
		w.copy.Close()
	}
	return n, err
}

// SIGTERM ends a process during streams and a long profile without waiting for them, although its limit is ten minutes.
// Clients receive HTTP/2's GOAWAY, without an error, before the connection closes.
func TestOrderlyStop(t *testing.T) {
	parallel(t)
	d := start(t, "--config-dir", folder(t), "--data-dir", t.TempDir(), "--shutdown-duration", "10m")
	eventually(t, patience, d.ready)
	taps := make(chan *wiretap, 1)
	dial := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		tapped := tap(c)
		select {
		case taps <- tapped:
		default: // the client retries after the end
		}
		return tapped, nil
	})
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), dial)
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
	if codes := <-(<-taps).ended; len(codes) == 0 || slices.ContainsFunc(codes, func(c http2.ErrCode) bool { return c != http2.ErrCodeNo }) {
		t.Errorf("it hung up after GOAWAY frames of %v, want some without an error", codes)
	}
	if !strings.Contains(d.log.String(), "navarchd stopped") {
		t.Error("it did not say that it stopped")
	}
}

// A leader that stops hands over at once, without waiting for its lease, which is longer than the limit of this test.
func TestLeaderHandsOver(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := folder(t)
	first := start(t, "--roles=ingest", "--config-dir", dir, store, "--leader-lease", "1h")
	eventually(t, patience, first.leading)
	second := start(t, "--roles=ingest", "--config-dir", dir, store, "--leader-lease", "1h")
	eventually(t, patience, second.ready)
	first.stop(t)
	eventually(t, patience, second.leading)
}

// A process has the services that its roles need, and no others.
func TestRolesInProcessesOfTheirOwn(t *testing.T) {
	parallel(t)
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
