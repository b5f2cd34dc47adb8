package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// storeNamed says where the store is, for the log.
func (c *config) storeNamed() string {
	if c.dataDir != "" {
		return "embedded etcd in " + c.dataDir
	}
	return "etcd at " + strings.Join(c.etcd.Endpoints, ",")
}

// announceReady says once when this process is ready, and while it is not what it waits for: after 10 s, and then less and less often.
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

// countFirst is an emit function that says, once the source has told everything that is there, how much that is.
func countFirst(log *slog.Logger, dir string, emit func([]object.Event)) func([]object.Event) {
	counts, synced := map[string]int{}, false
	return func(events []object.Event) {
		for _, e := range events {
			if synced {
				break
			}
			switch e.Op {
			case object.Put:
				counts[e.ID.Kind]++
			case object.Broken:
				counts["not readable"]++
			case object.Delete, object.Forget: // of nothing: it is the first look
			case object.Synced:
				synced = true
				kinds := slices.Sorted(maps.Keys(counts))
				amount := make([]int, len(kinds))
				for i, kind := range kinds {
					amount[i] = counts[kind]
				}
				log.Info("configuration folder read", obs.KeyName, dir, obs.KeyObjects, amounts(amount, func(i int) string { return kinds[i] }))
			}
		}
		emit(events)
	}
}

// problemLog writes a line when a problem of the configuration appears, and one when it is mended. Its methods are called by one
// goroutine.
type problemLog struct {
	log   *slog.Logger
	known map[object.Problem]bool
	bound *rate.Limiter // of the lines; its clock is what step is called with
	at    time.Time     // of the step
	left  int           // lines that were not written
}

// The bounds of the problem log: many at once, as when a folder with many of them is read first, and then one in a second.
const (
	problemBurst = 50
	problemRate  = 1.0
)

// step compares with the last call.
func (l *problemLog) step(now time.Time, problems []object.Problem) {
	if l.bound == nil {
		l.bound = rate.NewLimiter(problemRate, problemBurst)
	}
	l.at = now
	next := make(map[object.Problem]bool, len(problems))
	for _, one := range problems {
		if next[one] {
			continue
		}
		if next[one] = true; !l.known[one] {
			l.say(slog.LevelWarn, "problem with the configuration", one, obs.KeyProblem, one.Message, obs.KeyCode, one.Code, obs.KeyApplies, one.Severity == problem.Warning)
		}
	}
	for one := range l.known {
		if !next[one] {
			l.say(slog.LevelInfo, "problem with the configuration is over", one, obs.KeyProblem, one.Message)
		}
	}
	l.known = next
	if l.left > 0 && l.bound.TokensAt(now) >= problemBurst/2 {
		l.log.Warn("more problems with the configuration appeared or ended than are logged: /debug/problems lists those that there are", obs.KeyLines, l.left)
		l.left = 0
	}
}

func (l *problemLog) say(level slog.Level, message string, p object.Problem, more ...any) {
	if !l.bound.AllowN(l.at, 1) {
		l.left++
		return
	}
	l.log.Log(context.Background(), level, message, append([]any{obs.KeyObject, debug.Named(p.ID), obs.KeyField, p.Field, obs.KeyLocation, p.Location}, more...)...)
}

// logProblems follows the problems of the folder and of its objects, until the context ends.
func (i *ingester) logProblems(ctx context.Context) error {
	lines := &problemLog{log: i.log}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var last []object.Problem
	for first := true; ; first = false {
		all := slices.Concat(i.sourceProblems(), i.loop.Problems())
		if first || lines.left > 0 || !slices.Equal(all, last) {
			lines.step(time.Now(), all)
			last = all
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
