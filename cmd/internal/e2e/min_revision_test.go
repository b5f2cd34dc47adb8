package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// cable is a TCP address that leads to a Unix socket, and that a test can cut: it then passes no data, and closes no
// connection.
type cable struct {
	address string

	mu   sync.Mutex
	pass chan struct{} // closed: bytes pass
}

// lay makes a cable to a socket, which is not cut.
func lay(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: l.Addr().String(), pass: make(chan struct{})}
	close(c.pass)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				continue
			}
			go c.carry(t.Context(), near, far)
			go c.carry(t.Context(), far, near)
		}
	}()
	return c
}

func (c *cable) carry(ctx context.Context, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		c.mu.Lock()
		pass := c.pass
		c.mu.Unlock()
		select {
		case <-pass:
		case <-ctx.Done():
			return
		}
		if _, bad := to.Write(buf[:n]); err != nil || bad != nil {
			return
		}
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass = make(chan struct{})
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.pass)
}

// edition requests the routes from a replica like an agent that has seen a revision of a store. It returns the revision
// of the response, and the store's name.
func edition(ctx context.Context, d *daemon, minimum int64, store string) (revision int64, name string, err error) {
	conn, err := grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if minimum > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "navarch-revision", strconv.FormatInt(minimum, 10), "navarch-store", store)
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return 0, "", err
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node("shop", "client", "10.1.9.9"), TypeUrl: xds.Cluster.URL()}); err != nil && !errors.Is(err, io.EOF) {
		return 0, "", err
	}
	res, err := stream.Recv()
	if err != nil {
		return 0, "", err
	}
	header, err := stream.Header()
	if err != nil || len(header.Get("navarch-store")) != 1 {
		return 0, "", fmt.Errorf("header %v, %v", header, err)
	}
	revision, err = strconv.ParseInt(res.SystemVersionInfo, 10, 64)
	return revision, header.Get("navarch-store")[0], err
}

// A replica that is cut off from etcd lags without knowing it. It does not serve an agent with a higher revision before
// it is up to date; if etcd stays away, it refuses the agent. An agent with no higher revision, or with a revision of
// another store, is served with the present state.
func TestReplicaThatLagsDoesNotTakeBack(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir := folder(t)
	endpoint, err := url.Parse(etcd.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	c := lay(t, endpoint.Path)
	start(t, "--roles=ingest", "--config-dir", dir, "--etcd-endpoints", etcd.Endpoint())
	ahead := start(t, "--roles=xds", "--etcd-endpoints", etcd.Endpoint())
	behind := start(t, "--roles=xds", "--etcd-endpoints", "http://"+c.address)
	eventually(t, patience, serves(t, ahead, 1))
	eventually(t, patience, serves(t, behind, 1))
	old, store, err := edition(t.Context(), behind, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	c.cut()
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, ahead, 2))
	seen, same, err := edition(t.Context(), ahead, 0, "")
	if err != nil || seen <= old || same != store {
		t.Fatalf("revision %d after %d, store %q and %q, %v", seen, old, same, store, err)
	}
	for what, minimum := range map[string]struct {
		revision int64
		store    string
	}{"who has seen nothing": {0, ""}, "who has seen as much": {old, store}, "who has seen another store": {seen, "abc"}} {
		eventually(t, patience, func() error { // each time would take as long, were it waited
			began := time.Now()
			got, _, err := edition(t.Context(), behind, minimum.revision, minimum.store)
			if err != nil || got != old {
				t.Fatalf("%s: revision %d, %v; want %d", what, got, err, old)
			}
			if took := time.Since(began); took > 4*time.Second {
				return fmt.Errorf("%s: answered after %v", what, took)
			}
			return nil
		})
	}
	if got, _, err := edition(t.Context(), behind, seen, store); status.Code(err) != codes.Unavailable {
		t.Errorf("with etcd away: revision %d, %v; want to be turned away", got, err)
	}
	mended := time.AfterFunc(2*time.Second, c.mend) // in the middle of the time that it waits for etcd
	defer mended.Stop()
	eventually(t, patience, func() error {
		got, _, err := edition(t.Context(), behind, seen, store)
		if err == nil && got < seen || err != nil && status.Code(err) != codes.Unavailable {
			t.Fatalf("answered with revision %d, %d was seen; %v", got, seen, err)
		}
		return err
	})
	eventually(t, patience, serves(t, behind, 2))
}
