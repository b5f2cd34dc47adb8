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

// ProblemLog writes a line when a problem of the configuration appears, and one when it is mended. Its methods are called by one
// goroutine.
type ProblemLog struct {
	Log   *slog.Logger
	Named func(object.ID) string // what an object is called in the log

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

// Step takes all problems that there are now, and compares with the last call.
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
			l.say(slog.LevelWarn, "problem with the configuration", one, obs.KeyProblem, one.Message, obs.KeyCode, one.Code, obs.KeyAnalyzer, one.Analyzer, obs.KeyApplies, one.Severity == problem.Warning)
		}
	}
	for one := range l.known {
		if !next[one] {
			l.say(slog.LevelInfo, "problem with the configuration is over", one, obs.KeyProblem, one.Message)
		}
	}
	l.known = next
	if l.left > 0 && l.bound.TokensAt(now) >= problemBurst/2 {
		l.Log.Warn("more problems with the configuration appeared or ended than are logged: /debug/problems lists all present ones", obs.KeyLines, l.left)
		l.left = 0
	}
}

// Behind says whether there is more to say than the bound allowed: Step is then to be called again though nothing changed.
func (l *ProblemLog) Behind() bool { return l.left > 0 }

func (l *ProblemLog) say(level slog.Level, message string, p object.Problem, more ...any) {
	if !l.bound.AllowN(l.at, 1) {
		l.left++
		return
	}
	l.Log.Log(context.Background(), level, message, append([]any{obs.KeyObject, l.Named(p.ID), obs.KeyField, p.Field, obs.KeyLocation, p.Location}, more...)...)
}

// CountFirst is an emit function that says, once the source has emitted everything that is there, how much that is.
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
