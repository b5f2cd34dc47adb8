package obs

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func traced(t *testing.T, mesh string, cluster uint64) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	tracer := NewTracer(sdktrace.NewSimpleSpanProcessor(spans), mesh, "test")
	tracer.Begin(cluster)
	return tracer, spans
}

// The ingester and a replica, processes that share nothing but a revision, write one trace: every span is below the
// ingester's first.
func TestTraceIsShared(t *testing.T) {
	leader, written := traced(t, "default", 7)
	replica, read := traced(t, "default", 7)
	now := time.Now()
	leader.Committed(42, now, now.Add(time.Second), now.Add(2*time.Second), 3, 1)
	replica.Mirrored(42, now.Add(2*time.Second), now.Add(3*time.Second), 4)
	replica.Planned(42, "config", now.Add(3*time.Second), now.Add(4*time.Second), 4, 2)
	replica.Acknowledged(42, "cds", "sidecar~1", now.Add(4*time.Second), now.Add(5*time.Second))
	spans := append(written.GetSpans(), read.GetSpans()...)
	var root tracetest.SpanStub
	names := map[string]tracetest.SpanStub{}
	for _, s := range spans {
		names[s.Name] = s
		if s.Name == "change" {
			root = s
		}
	}
	if len(names) != 5 || root.Parent.IsValid() || root.EndTime.Sub(root.StartTime) != 2*time.Second {
		t.Fatalf("%d kinds of spans, root %+v", len(names), root)
	}
	for _, s := range spans {
		if s.SpanContext.TraceID() != root.SpanContext.TraceID() || s.Name != "change" && s.Parent.SpanID() != root.SpanContext.SpanID() {
			t.Errorf("%s is not below the change", s.Name)
		}
	}
	other, elsewhere := traced(t, "default", 8) // another etcd counts its own revisions
	other.Mirrored(42, now, now, 1)
	if elsewhere.GetSpans()[0].SpanContext.TraceID() == root.SpanContext.TraceID() {
		t.Error("revisions of two clusters share a trace")
	}
}

// For any number of proxies that acknowledge a revision, there are few spans; an unknown revision is not traced.
func TestTraceIsBounded(t *testing.T) {
	tracer, spans := traced(t, "default", 7)
	now := time.Now()
	for revision := range int64(2 * maxRevisions) {
		for range 2 * maxPushes {
			tracer.Acknowledged(revision, "eds", "p", now, now)
		}
	}
	if got := len(spans.GetSpans()); got != 2*maxRevisions*maxPushes {
		t.Errorf("%d spans, want %d for each revision", got, maxPushes)
	}
	if len(tracer.pushes) != maxRevisions || len(tracer.order) != maxRevisions {
		t.Errorf("%d revisions are remembered", len(tracer.pushes))
	}
	early, none := traced(t, "default", 0)
	early.Mirrored(1, now, now, 1)
	if len(none.GetSpans()) != 0 {
		t.Error("a span without a cluster")
	}
	if err := tracer.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Without --otlp-endpoint there is no tracer, and calling it costs no allocation.
func TestNoTracerCostsNothing(t *testing.T) {
	var tracer *Tracer
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() {
		tracer.Committed(1, now, now, now, 1, 1)
		tracer.Mirrored(1, now, now, 1)
		tracer.Planned(1, "config", now, now, 1, 1)
		tracer.Acknowledged(1, "cds", "p", now, now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
