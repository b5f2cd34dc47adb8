package obs

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer writes one trace for each revision of the store. The spans of a trace reach from the event that caused the
// revision to the ACKs of proxies. All processes can write into the same trace, because the ids of the trace and of its
// first span are a hash of the mesh, the etcd cluster and the revision. On a nil Tracer, Begin and Close panic, and the
// other methods do nothing. A Tracer is safe for concurrent use.
type Tracer struct {
	mesh     string
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	cluster  atomic.Uint64 // id of the etcd cluster; 0: unknown, and nothing is traced

	mu     sync.Mutex    // guards the fields below; no other lock is acquired while it is held
	pushes map[int64]int // by revision: number of responses with a span
	order  []int64       // the revisions in pushes, the oldest entry first
}

// Bounds of the spans of single responses. For each revision, the first maxPushes responses get a span. The Tracer
// counts responses for at most maxRevisions revisions at a time.
const (
	maxPushes    = 64
	maxRevisions = 256
)

// NewTracer returns a Tracer that passes its spans to a processor. The Tracer writes nothing before Begin. The argument
// mesh is the name of the mesh, and name is the name of this process.
func NewTracer(processor sdktrace.SpanProcessor, mesh, name string) *Tracer {
	t := &Tracer{mesh: mesh, pushes: map[int64]int{}}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor), sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "navarchd"),
			attribute.String("service.version", Version), attribute.String("service.instance.id", name))))
	t.tracer = t.provider.Tracer("navarch.io/navarch")
	return t
}

// Begin sets the id of the etcd cluster whose revisions are traced. With the id 0, nothing is traced. Events before the
// call of Begin are not traced.
func (t *Tracer) Begin(cluster uint64) { t.cluster.Store(cluster) }

// Close flushes the waiting spans, and ends the Tracer. Errors are those of the processor, for example if ctx ends
// before the exporter has accepted the spans.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Committed writes the first span of a revision's trace, and below it the span of the commit. The first span begins at
// the time event, and the span of the commit begins at the time began. Both spans end at the time done. The arguments
// puts and deletes are the numbers of written and deleted records.
func (t *Tracer) Committed(revision int64, event, began, done time.Time, puts, deletes int) {
	if !t.on() {
		return
	}
	root, _, _ := t.root(revision)
	ctx := context.WithValue(context.Background(), rootKey{}, root)
	ctx, span := t.tracer.Start(ctx, "change", trace.WithNewRoot(), trace.WithTimestamp(event),
		trace.WithAttributes(attribute.Int64(KeyRevision, revision), attribute.Int("puts", puts), attribute.Int("deletes", deletes)))
	_, commit := t.tracer.Start(ctx, "commit", trace.WithTimestamp(began))
	commit.End(trace.WithTimestamp(done))
	span.End(trace.WithTimestamp(done))
}

// Mirrored writes the span from the commit of a revision to this replica's snapshot with the revision. The argument
// edits is the number of changed records.
func (t *Tracer) Mirrored(revision int64, committed, done time.Time, edits int) {
	if t.on() {
		t.span("mirror", revision, committed, done, attribute.Int("edits", edits))
	}
}

// Planned writes the span of one plan over all changes up to this revision. The argument lane is the kind of plan, such
// as "config" or "endpoint". The argument edits is the number of changed records, and moved is the number of affected
// proxies.
func (t *Tracer) Planned(revision int64, lane string, began, done time.Time, edits, moved int) {
	if t.on() {
		t.span("plan", revision, began, done, attribute.String("lane", lane), attribute.Int("edits", edits), attribute.Int("proxies", moved))
	}
}

// Acknowledged writes the span of one response, from sending it to its ACK, for the first 64 responses of a revision.
// The argument typ is the type of the resources. The Tracer keeps the counts of 256 revisions. If it has dropped the
// count of a revision, the count starts again at 0.
func (t *Tracer) Acknowledged(revision int64, typ, proxy string, sent, acked time.Time) {
	if t.on() && t.counts(revision) {
		t.span("push", revision, sent, acked, attribute.String(KeyType, typ), attribute.String(KeyProxy, proxy))
	}
}

// on reports whether spans are written.
func (t *Tracer) on() bool { return t != nil && t.cluster.Load() != 0 }

// counts reports whether one more response of a revision is written.
func (t *Tracer) counts(revision int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known := t.pushes[revision]
	if !known {
		if len(t.order) == maxRevisions {
			delete(t.pushes, t.order[0])
			t.order = append(t.order[:0], t.order[1:]...)
		}
		t.order = append(t.order, revision)
	}
	t.pushes[revision] = min(n+1, maxPushes)
	return n < maxPushes
}

// span writes one span below the first span of a revision.
func (t *Tracer) span(name string, revision int64, began, done time.Time, attributes ...attribute.KeyValue) {
	_, traceID, spanID := t.root(revision)
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true})
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), name, trace.WithTimestamp(began),
		trace.WithAttributes(append(attributes, attribute.Int64(KeyRevision, revision))...))
	span.End(trace.WithTimestamp(done))
}

// root returns the ids of a revision's trace and of its first span.
func (t *Tracer) root(revision int64) (sum [24]byte, traceID trace.TraceID, spanID trace.SpanID) {
	h := sha256.New()
	h.Write([]byte(t.mesh))
	var numbers [17]byte // a zero separates the name from the numbers
	binary.BigEndian.PutUint64(numbers[1:], t.cluster.Load())
	binary.BigEndian.PutUint64(numbers[9:], uint64(revision))
	h.Write(numbers[:])
	copy(sum[:], h.Sum(nil))
	copy(traceID[:], sum[:16])
	copy(spanID[:], sum[16:])
	return sum, traceID, spanID
}

// ids assigns the ids of root to a first span, and random ids to all later spans.
type ids struct{}

type rootKey struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (traceID trace.TraceID, spanID trace.SpanID) {
	if sum, ok := ctx.Value(rootKey{}).([24]byte); ok {
		copy(traceID[:], sum[:16])
		copy(spanID[:], sum[16:])
		return traceID, spanID
	}
	binary.BigEndian.PutUint64(traceID[:8], rand.Uint64())
	binary.BigEndian.PutUint64(traceID[8:], rand.Uint64()|1)
	return traceID, ids{}.NewSpanID(ctx, traceID)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (spanID trace.SpanID) {
	binary.BigEndian.PutUint64(spanID[:], rand.Uint64()|1)
	return spanID
}
