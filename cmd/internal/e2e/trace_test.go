package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"navarch.io/navarch/store/kv/kvtest"
)

// collector is an OTLP collector that stores all spans.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.Span
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// whole returns an error unless some trace has spans of all these names below the one root "change".
func (c *collector) whole(names ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, root := range c.spans {
		if root.Name != "change" {
			continue
		}
		below := map[string]bool{}
		for _, s := range c.spans {
			if string(s.TraceId) == string(root.TraceId) && string(s.ParentSpanId) == string(root.SpanId) {
				below[s.Name] = true
			}
		}
		missing := ""
		for _, name := range names {
			if !below[name] {
				missing = name
			}
		}
		if missing == "" {
			return nil
		}
	}
	return fmt.Errorf("no trace of %d spans has all of %v", len(c.spans), names)
}

// With --otlp-endpoint, all work for an edit in the ingester and in a replica forms one trace, up to the ACK of a
// proxy.
func TestSpansFromEventToAck(t *testing.T) {
	parallel(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)

	store, otlp := "--etcd-endpoints="+kvtest.Start(t).Endpoint(), "--otlp-endpoint="+l.Addr().String()
	dir := folder(t)
	start(t, "--roles=ingest", "--config-dir", dir, store, otlp)
	replica := start(t, "--roles=xds", store, otlp)
	eventually(t, patience, serves(t, replica, 1))
	follow(t, replica)
	write(t, dir, "services.yaml", services+"---\n"+badFilter[1:])
	eventually(t, patience, func() error { return c.whole("commit", "mirror", "plan", "push") })
}
