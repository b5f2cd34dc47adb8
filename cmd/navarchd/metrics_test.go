package main

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
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

// A stream that was closed because its client is too slow is counted, by what was not done in time; istiod's metric is of the
// one that it has.
func TestSlowClientsAreCounted(t *testing.T) {
	h := hooks(quiet, &commits{}, nil)
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

// one is a planner whose clients all have the same.
type one struct{ set *manifest.Set }

func (o one) Join(context.Context, serve.Client, func(fanout.Lane)) (serve.View, error) {
	return o, nil
}
func (o one) Set() *manifest.Set          { return o.set }
func (one) Namespace() string             { return "n" }
func (one) ID() string                    { return "v" }
func (one) Confirm(context.Context) error { return nil }
func (one) Leave()                        {}

// So is one that takes what it is sent and never acknowledges it.
func TestSilentClientIsCounted(t *testing.T) {
	set := &manifest.Set{Revision: 1}
	set.Types[xds.Cluster][manifest.Scope] = manifest.Of(&xds.Resource{Type: xds.Cluster, Name: "c", Version: "1"})
	s := serve.New(serve.Config{Planner: one{set}, AckDeadline: time.Second, Log: slog.New(slog.DiscardHandler), Hooks: hooks(quiet, &commits{}, nil)})
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
	defer done.Wait()
	defer cancel()
	defer g.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := obs.TooSlow.WithLabelValues("acknowledged")
	was := tally(t, acknowledged)
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: xds.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	for deadline := time.Now().Add(time.Minute); tally(t, acknowledged) != was+1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("counted %d, then %d", was, tally(t, acknowledged))
		}
	}
}
