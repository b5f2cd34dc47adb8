package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// storeNamed describes the store, for the log.
func (c *config) storeNamed() string {
	if c.storeless() {
		return "none"
	}
	if c.dataDir != "" {
		return "embedded etcd in " + c.dataDir
	}
	return "etcd at " + strings.Join(c.etcd.Endpoints, ",")
}

// announceReady returns the task that logs a line when this process becomes ready. While the process is not ready, the
// task logs the reason: after 10 s, and then at growing intervals.
func announceReady(began time.Time, ready func() error, log *slog.Logger) loop.Task {
	return loop.Task{Name: "ready", Run: func(ctx context.Context) error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for patience := 10 * time.Second; ; {
			err := ready()
			if err == nil {
				break
			}
			if time.Since(began) >= patience {
				log.Warn("not ready yet", obs.KeyTook, time.Since(began).Round(time.Second), obs.KeyError, err)
				patience *= 2
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		log.Info("ready", obs.KeyTook, time.Since(began).Round(time.Millisecond))
		<-ctx.Done()
		return ctx.Err()
	}}
}

// logProblems logs the problems of the configuration sources and of their objects, until ctx ends.
func (i *ingester) logProblems(ctx context.Context) error {
	lines := &changes.ProblemLog{Log: i.log, Named: debug.Named}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var sources, objects []object.Problem // of the last call of Step
	for first := true; ; first = false {
		nowSources, nowObjects := i.sourceProblems(), i.loop.Problems()
		if first || !same(nowSources, sources) || !same(nowObjects, objects) {
			sources, objects = nowSources, nowObjects
			lines.Step(time.Now(), slices.Concat(sources, objects))
		} else if lines.Behind() {
			lines.Count(time.Now())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
