package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// telemetry records the progress of each change of configuration, from its event to the last acknowledgement.
type telemetry struct {
	commits changes.Commits
	written changes.Written
	changes *changes.Log
	tracer  *obs.Tracer // nil: no tracing
}

// newTelemetry returns a telemetry without recorded changes. With --otlp-endpoint, changes are also traced. The error
// names this flag.
func newTelemetry(ctx context.Context, c *config, log *slog.Logger) (t *telemetry, err error) {
	t = &telemetry{changes: changes.NewLog(log)}
	t.tracer, err = newTracer(ctx, c, log)
	return t, err
}

// part returns the tasks of t. Without a store there are no changes to trace.
func (t *telemetry) part(store *kv.Store) part {
	added := part{tasks: []loop.Task{{Name: "changes", Run: t.changes.Run}}}
	if t.tracer != nil && store != nil {
		added.tasks = append(added.tasks, tracing(t.tracer, store))
	}
	return added
}

// newTracer returns a tracer that sends spans to --otlp-endpoint, or nil without this flag. It does not wait for the
// collector. The error names the flag.
func newTracer(ctx context.Context, c *config, log *slog.Logger) (*obs.Tracer, error) {
	if c.otlp == "" {
		return nil, nil
	}
	where := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.otlp), otlptracegrpc.WithInsecure()}
	if strings.Contains(c.otlp, "://") {
		where = []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(c.otlp)}
	}
	exporter, err := otlptracegrpc.New(ctx, where...)
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are lost", obs.KeyError, err) }))
	return obs.NewTracer(sdktrace.NewBatchSpanProcessor(exporter, sdktrace.WithBatchTimeout(time.Second)), c.mesh, c.processName()), nil
}

// tracing returns the task that passes the id of the etcd cluster to the tracer, and flushes the last spans at the end.
func tracing(tracer *obs.Tracer, store *kv.Store) loop.Task {
	return loop.Task{Name: "trace", Run: func(ctx context.Context) error {
		for ctx.Err() == nil {
			stat, err := store.Stat(ctx)
			if err == nil {
				tracer.Begin(stat.Cluster)
				break
			}
			_ = loop.Pause(ctx, time.Second)
		}
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tracer.Close(grace) // the collector may be away; the error handler logs this
		return ctx.Err()
	}}
}

// committed records a batch that the ingester has committed at a revision. The argument event is the time of the
// batch's oldest event. The argument began is the time at which the commit started.
func (t *telemetry) committed(revision int64, event, began time.Time, batch kv.Batch) {
	t.written.Add(revision, event, batch)
	t.changes.Wrote(revision, event, batch)
	if t.tracer != nil {
		t.tracer.Committed(revision, event, began, time.Now(), len(batch.Puts), len(batch.Deletes))
	}
}

// tracePlans returns the function that the planner calls after each plan. The function reports the plan to log, and to
// tracer unless tracer is nil.
func tracePlans(tracer *obs.Tracer, log *changes.Log) func(revision int64, path plan.Path, began time.Time, edits, moved int) {
	return func(revision int64, path plan.Path, began time.Time, edits, moved int) {
		log.Planned(revision, path, moved)
		if tracer == nil {
			return
		}
		name := "config"
		if path == plan.Fast {
			name = "endpoint"
		}
		tracer.Planned(revision, name, began, time.Now(), edits, moved)
	}
}

// traceMirror traces that the mirror has the snapshot c.New. A snapshot that was listed instead of watched has no
// commit time, and is not traced.
func traceMirror(tracer *obs.Tracer, c mirror.Change) {
	if tracer != nil && !c.Committed.IsZero() {
		tracer.Mirrored(c.New.Revision(), c.Committed, time.Now(), len(c.Edits))
	}
}
