package serve

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/xds"
)

// counted counts the writes of the connections that it accepts.
type counted struct {
	net.Listener
	writes *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return countedConn{conn, c.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// A request of 400 KB does not stop after each 64 KB until the server has extended the flow control window: the server
// writes one update of the stream's window, one of the connection's, and the response.
func TestLargeRequestsFlow(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	writes := &atomic.Int64{}
	startOn(t, Config{Planner: newPlanner(cluster("a"))}, counted{l, writes})
	c := dial(t, l.Addr().String())
	c.ask(xds.Cluster)
	c.ack(c.next())
	before := writes.Load()
	var gone []string
	for i := range 6000 {
		gone = append(gone, fmt.Sprintf("outbound|80||a-service-that-is-no-more-%04d.shop.svc.cluster.local", i))
	}
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL(), ResourceNamesUnsubscribe: gone})
	c.ask(xds.Listener)
	if r := c.next(); r.TypeUrl != xds.Listener.URL() {
		t.Fatalf("answered %s", r.TypeUrl)
	}
	if n := writes.Load() - before; n > 5 {
		t.Errorf("%d writes while a request of 400 KB came", n)
	} else {
		t.Logf("%d writes", n)
	}
}
