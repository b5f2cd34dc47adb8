package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// connected returns a client of a server through a connection in memory: in a bubble of synctest the time advances only
// when all goroutines wait.
func connected(t *testing.T, cfg Config) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	startOn(t, cfg, l)
	conn, err := grpc.NewClient("passthrough:///xds", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// logLine has the fields of a log line that the tests read.
type logLine struct {
	Msg, Node, Peer, Identity, Cause, Error, Type string
	Suppressed                                    int
}

func linesOf(t *testing.T, log *envoytest.Output) (all []logLine) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var one logLine
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// Thousands of refused streams cause a few log lines, which count all of them; a refusal for another reason is logged
// at once, with its client.
func TestRefusedStreamsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &envoytest.Output{}
		p := newPlanner()
		p.refuse = errors.New("not type~ip~id~domain")
		service := connected(t, Config{Planner: p, Log: slog.New(slog.NewJSONHandler(log, nil)), Authenticate: func(ctx context.Context) (attest.Caller, error) {
			if len(metadata.ValueFromIncomingContext(ctx, "token")) == 0 {
				return attest.Caller{}, errors.New("no token")
			}
			return callerOf("spiffe://mesh/ns/shop/sa/web"), nil
		}})
		open := func(ctx context.Context, node string) {
			t.Helper()
			stream, err := service.DeltaAggregatedResources(ctx)
			if err == nil {
				_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: xds.Cluster.URL()})
				_, err = stream.Recv()
			}
			if err == nil {
				t.Fatal("let in")
			}
		}
		const refused = 2000
		for i := range refused {
			open(t.Context(), fmt.Sprint(i))
			if i == refused/2 {
				open(metadata.AppendToOutgoingContext(t.Context(), "token", "good"), strings.Repeat("n", maxNodeID))
			}
		}
		time.Sleep(2*obs.SampleInterval + time.Second)
		lines := linesOf(t, log)
		counted := map[string]int{}
		for _, one := range lines {
			counted[one.Cause] += 1 + one.Suppressed
			if one.Msg != "stream refused" || one.Peer == "" {
				t.Errorf("%+v", one)
			}
		}
		if len(lines) != 3 || len(counted) != 2 || counted["credential, Unauthenticated"] != refused || counted["join, InvalidArgument"] != 1 {
			t.Fatalf("%d lines count %v: %+v", len(lines), counted, lines)
		}
		if one := lines[1]; one.Identity != "spiffe://mesh/ns/shop/sa/web" || len(one.Node) < 100 || len(one.Node) > 1000 || !strings.Contains(one.Error, "not type~ip") {
			t.Errorf("%+v", one)
		}
	})
}

// A type that is not served is logged once for each stream and type, for a few types of a stream, and is sampled over
// all streams; agents' health reports are not logged. The request is not answered, and the stream continues.
func TestTypesThatAreNotServedAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &envoytest.Output{}
		service := connected(t, Config{Planner: newPlanner(cluster("a")), Log: slog.New(slog.NewJSONHandler(log, nil))})
		const streams = 10
		for range streams {
			stream, err := service.DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := &client{t, stream}
			for i := range 100 {
				for _, url := range []string{healthURL, "example.com/again", fmt.Sprint("example.com/", i), strings.Repeat("u", 10_000)} {
					c.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: url, ResourceNamesSubscribe: []string{"x"}})
				}
			}
			c.ask(xds.Cluster)
			res := c.next()
			if res.TypeUrl != xds.Cluster.URL() {
				t.Fatal(res)
			}
			c.ack(res)
		}
		time.Sleep(2*obs.SampleInterval + time.Second)
		counted := map[string]int{}
		lines := linesOf(t, log)
		for _, one := range lines {
			counted[one.Cause] += 1 + one.Suppressed
			if one.Node != "test" || one.Peer == "" || len(one.Type) > 250 || strings.Contains(one.Type, "Health") {
				t.Errorf("%+v", one)
			}
		}
		if counted["unknown type"] != maxUnserved*streams || len(lines) != 2 {
			t.Errorf("%d lines count %v", len(lines), counted)
		}
	})
}

// A version that many proxies refuse is logged once and then sampled, with the number of all refusals. A refusal of
// another resource is logged at once. One line names the client, the resource and the reason.
func TestRefusedResourcesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &envoytest.Output{}
		service := connected(t, Config{Planner: newPlanner(cluster("a"), cluster("b")), Log: slog.New(slog.NewJSONHandler(log, nil))})
		const streams = 100
		for i := range streams {
			stream, err := service.DeltaAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, name := &client{t, stream}, "a"
			if i == streams/2 {
				name = "b"
			}
			c.ask(xds.Cluster)
			c.nack(c.next(), "Error adding/updating cluster(s) "+name+": why")
			c.ack(c.next()) // of the other resource, again
		}
		time.Sleep(2*obs.SampleInterval + time.Second)
		lines, counted := linesOf(t, log), map[string]int{}
		for _, one := range lines {
			counted[one.Cause] += 1 + one.Suppressed
			if one.Msg != "proxy refused configuration" || one.Node != "test" || one.Peer == "" || !strings.Contains(one.Error, "why") {
				t.Errorf("%+v", one)
			}
		}
		if len(lines) != 3 || counted["cluster a"] != streams-1 || counted["cluster b"] != 1 {
			t.Errorf("%d lines count %v", len(lines), counted)
		}
	})
}
