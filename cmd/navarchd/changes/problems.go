package changes

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// ProblemLog writes a line when a configuration problem appears, and a second line when the problem is solved. Log and
// Named are required. A ProblemLog is not safe for concurrent use.
type ProblemLog struct {
	Log   *slog.Logger
	Named func(object.ID) string // returns the name of an object for the log

	known []object.Problem // of the last Step
	bound *rate.Limiter    // limits the rate of lines; Step provides its clock
	at    time.Time        // time of the present Step
	left  int              // lines that were not written
}

// Bounds of the problem log's lines: 50 at once, for example when a folder is read for the first time, and then one per
// second.
const (
	problemBurst = 50
	problemRate  = 1.0
)

// Step logs the differences between the present problems and those of the last call. It logs new problems as warnings,
// and solved problems as information. It writes at most 50 lines at once, and then one per second. Further lines are
// only counted, and Count logs their number later. The time now must not decrease. Step retains the slice, which
// must not change afterwards. It is fast if most problems are the same, in the order of normal.CompareProblems.
func (l *ProblemLog) Step(now time.Time, problems []object.Problem) {
	if l.bound == nil {
		l.bound = rate.NewLimiter(problemRate, problemBurst)
	}
	l.at = now
	over, began := differing(l.known, problems)
	for _, one := range began {
		l.write(slog.LevelWarn, "problem with the configuration",
			one, obs.KeyProblem, one.Full(), obs.KeyCode, one.Code, obs.KeyAnalyzer, one.Analyzer, obs.KeyApplies, one.Severity == problem.Warning)
	}
	for _, one := range over {
		l.write(slog.LevelInfo, "problem with the configuration is over", one, obs.KeyProblem, one.Full())
	}
	l.known = problems
	l.Count(now)
}

// differing returns the problems that only one of two lists contains, each once. Equal problems of a list must be
// adjacent. Problems are looked up in a table only where the lists differ, or where a list is not in the order of
// normal.CompareProblems.
func differing(before, now []object.Problem) (over, began []object.Problem) {
	was, is := map[object.Problem]bool{}, map[object.Problem]bool{}
	var inBefore, inNow []object.Problem
	for len(before)+len(now) > 0 {
		order := 1
		if len(now) == 0 {
			order = -1
		} else if len(before) > 0 {
			if before[0] == now[0] {
				before, now = withoutFirst(before), withoutFirst(now)
				continue
			}
			order = normal.CompareProblems(before[0], now[0])
		}
		if order <= 0 {
			inBefore, before = append(inBefore, before[0]), before[1:]
			was[inBefore[len(inBefore)-1]] = true
		} else {
			inNow, now = append(inNow, now[0]), now[1:]
			is[inNow[len(inNow)-1]] = true
		}
	}
	only := func(list []object.Problem, other map[object.Problem]bool) []object.Problem {
		return slices.DeleteFunc(list, func(p object.Problem) bool {
			known := other[p]
			other[p] = true // once
			return known
		})
	}
	return only(inBefore, is), only(inNow, was)
}

// withoutFirst returns a list without its first problem and the equal problems that follow it.
func withoutFirst(list []object.Problem) []object.Problem {
	rest := list[1:]
	for len(rest) > 0 && rest[0] == list[0] {
		rest = rest[1:]
	}
	return rest
}

// Count logs the number of lines that Step did not write, once the rate limit permits 25 lines again. A call before
// that time does nothing. Count is cheap, unlike Step.
func (l *ProblemLog) Count(now time.Time) {
	if l.left > 0 && l.bound.TokensAt(now) >= problemBurst/2 {
		l.Log.Warn("some new and ended problems of the configuration were not logged: /debug/problems lists all present problems",
			obs.KeyLines, l.left)
		l.left = 0
	}
}

// Behind reports whether Step has left out lines whose count is not logged yet. Count must then be called again, even
// if no problem changes.
func (l *ProblemLog) Behind() bool { return l.left > 0 }

func (l *ProblemLog) write(level slog.Level, message string, p object.Problem, more ...any) {
	if !l.bound.AllowN(l.at, 1) {
		l.left++
		return
	}
	l.Log.Log(context.Background(), level, message,
		append([]any{obs.KeyObject, l.Named(p.ID), obs.KeyField, p.Field, obs.KeyLocation, p.Location}, more...)...)
}

// CountFirst wraps the function emit of a source that reads a configuration folder. The returned function passes all
// events to emit unchanged. It counts the objects by kind until the first object.Synced event, and logs the counts when
// this event arrives. The argument dir is the folder's name in the log. The returned function is not safe for
// concurrent use.
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
