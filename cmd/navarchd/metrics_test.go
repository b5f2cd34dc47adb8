package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

func tally(t *testing.T, c prometheus.Counter) int {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// A stream that was closed because its client is too slow is counted, by the operation that took too long. istiod's
// metric counts the one operation that istiod knows.
func TestSlowClientsAreCounted(t *testing.T) {
	h := hooks(&changes.Commits{}, changes.NewLog(quiet), nil, nil)
	written, acknowledged := obs.TooSlow.WithLabelValues("written"), obs.TooSlow.WithLabelValues("acknowledged")
	for _, c := range []struct {
		write                          bool
		istiods, written, acknowledged int
	}{{true, 1, 1, 0}, {false, 0, 0, 1}} {
		was := [...]int{tally(t, obs.WriteTimeout), tally(t, written), tally(t, acknowledged)}
		h.Timeout(c.write)
		if is := [...]int{tally(t, obs.WriteTimeout), tally(t, written), tally(t, acknowledged)}; is != [...]int{was[0] + c.istiods, was[1] + c.written, was[2] + c.acknowledged} {
			t.Errorf("write %v: %v, then %v", c.write, was, is)
		}
	}
}

// A stream that was closed because its client receives resources and never acknowledges them is counted too.
func TestSilentClientIsCounted(t *testing.T) {
	s := serve.New(serve.Config{Planner: servetest.OneCluster(), AckDeadline: time.Second, Log: quiet, Hooks: hooks(&changes.Commits{}, changes.NewLog(quiet), nil, nil)})
	acknowledged := obs.TooSlow.WithLabelValues("acknowledged")
	was := tally(t, acknowledged)
	stream := servetest.Subscribe(t, servetest.Dialed(t, s))
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	servetest.Soon(t, "it is counted", func() bool { return tally(t, acknowledged) == was+1 })
}

// A refused stream is one line of the log, at any level: there may be thousands, and further ones are only counted.
func TestRefusedStreamIsOneLine(t *testing.T) {
	out := &envoytest.Output{}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	conn := servetest.Dialed(t, serve.New(serve.Config{Planner: servetest.OneCluster(), Log: log, Hooks: hooks(&changes.Commits{}, changes.NewLog(log), nil, nil)}))
	for range 3 {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL()}) // no node
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "stream refused") {
		t.Errorf("%d lines:\n%s", n, out)
	}
}

// The metric of withheld resources counts a resource once, however many proxies refused it.
func TestQuarantineCountsResources(t *testing.T) {
	got := resourcesOf([]serve.Refusal{{Node: "a", Type: xds.Cluster, Name: "x"}, {Node: "b", Type: xds.Cluster, Name: "x"},
		{Node: "b", Type: xds.Cluster, Name: "y"}, {Node: "b", Type: xds.Listener, Name: "x"}})
	if want := [xds.NumTypes]int{xds.Cluster: 2, xds.Listener: 1}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
