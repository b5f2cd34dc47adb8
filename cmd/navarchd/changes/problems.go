package changes

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// ProblemLog writes a line when a configuration problem appears, and one when it is solved. One goroutine calls its
// methods.
type ProblemLog struct {
	Log   *slog.Logger
	Named func(object.ID) string // name of an object in the log

	known map[object.Problem]bool
	bound *rate.Limiter // of the lines; Step provides its clock
	at    time.Time     // of the step
	left  int           // lines that were not written
}

// Bounds of the problem log: many at once, as when a folder is read first, and then one per second.
const (
	problemBurst = 50
	problemRate  = 1.0
)

// Step logs the differences between all present problems and those of the last call: new problems as warnings, and
// those that are over. Lines above the bound are only counted, and the count is logged later.
func (l *ProblemLog) Step(now time.Time, problems []object.Problem) {
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
			l.write(slog.LevelWarn, "problem with the configuration",
				one, obs.KeyProblem, one.Message, obs.KeyCode, one.Code, obs.KeyAnalyzer, one.Analyzer, obs.KeyApplies, one.Severity == problem.Warning)
		}
	}
	for one := range l.known {
		if !next[one] {
			l.write(slog.LevelInfo, "problem with the configuration is over", one, obs.KeyProblem, one.Message)
		}
	}
	l.known = next
	l.Count(now)
}

// Count logs how many lines were not written, once the bound has room again. It is cheap, unlike Step.
func (l *ProblemLog) Count(now time.Time) {
	if l.left > 0 && l.bound.TokensAt(now) >= problemBurst/2 {
		l.Log.Warn("more problems with the configuration appeared or ended than are logged: /debug/problems lists all present ones",
			obs.KeyLines, l.left)
		l.left = 0
	}
}

// Behind reports whether dropped lines are counted and not logged yet: Count must then be called again even without a
// change.
func (l *ProblemLog) Behind() bool { return l.left > 0 }

func (l *ProblemLog) write(level slog.Level, message string, p object.Problem, more ...any) {
	if !l.bound.AllowN(l.at, 1) {
		l.left++
		return
	}
	l.Log.Log(context.Background(), level, message,
		append([]any{obs.KeyObject, l.Named(p.ID), obs.KeyField, p.Field, obs.KeyLocation, p.Location}, more...)...)
}

// CountFirst wraps emit for the source of a configuration folder. Events up to the first object.Synced are counted by
// kind, and then the counts are logged, with dir as the folder's name. All events go to emit.
func CountFirst(log *slog.Logger, dir string, emit func([]object.Event)) func([]object.Event) {
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
			case object.Delete, object.Forget: // nothing to count at the first read
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
