package machines

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
)

// WorkloadEntries stores the WorkloadEntries of machines: in Kubernetes, or as records if the configuration comes from
// files alone. Leader.Run calls both methods in its goroutine.
type WorkloadEntries interface {
	// Want replaces the target states of all entries. Want may keep the map, but must not change the machines in it.
	Want(all map[Name]Wanted)
	// There returns the existing entries of machines, and a channel that is closed when an entry appears or disappears.
	// The change of an existing entry need not close the channel. A nil channel means that only Want changes them.
	There() ([]WorkloadEntry, <-chan struct{})
}

// DefaultGrace is the time for which an entry stays without a connected machine.
const DefaultGrace = 10 * time.Second

// tick is the longest pause between two decisions.
const tick = 10 * time.Second

// StepsApart is the least time between two decisions. Each decision reads all machines, so frequent changes of one
// service account must not cause as many decisions.
const StepsApart = 200 * time.Millisecond

// maxProblems bounds the result of Leader.Problems.
const maxProblems = 50

// Leader decides from the reports of the replicas which WorkloadEntries of machines exist. Only one Run may be active.
// Problems may be called from any goroutine.
type Leader struct {
	Grace time.Duration // time for which an entry stays without a connected machine; 0: no time
	// OwnOnly means that the health of entries written by users cannot be stored, because they are in files. A problem
	// names each such machine.
	OwnOnly  bool
	Log      *slog.Logger // not nil
	problems atomic.Pointer[[]Problem]
}

// Problems returns at most 50 problems of the last decision of the present term. It is nil outside of a term, before
// the first decision, and without problems. The caller must not change it.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Run runs one term until ctx ends. After each change of reports or entries it decides again, and passes the result to
// entries.Want. At the end of ctx it returns nil or the context's error. Any other error means that store cannot follow
// the folder of reports.
func (l *Leader) Run(ctx context.Context, store *kv.Store, entries WorkloadEntries) error {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return err
	}
	defer l.problems.Store(nil)
	registry := NewRegistry(l.Grace)
	read, reports := Reports[Machine]{Of: func(m Machine) Machine { return m }, Log: l.Log}, []Machine(nil)
	known := false // true once the reports were read: before that, no decision is possible
	var decided time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		there, changed := entries.There()
		wait := tick
		if rest := StepsApart - time.Since(decided); known && rest > 0 {
			wait = rest
		} else if known {
			decided = time.Now()
			all, problems, next := registry.Step(time.Now(), reports, there)
			if next > 0 {
				wait = min(wait, next)
			}
			for _, m := range reports {
				if l.OwnOnly && m.Group == "" {
					problems = append(problems, Problem{m, "its health is not stored: the WorkloadEntry is in a file (WORKLOAD_ENTRY is for Kubernetes)"})
				}
			}
			problems = problems[:min(len(problems), maxProblems)]
			l.problems.Store(&problems)
			entries.Want(all)
		}
		timer.Reset(wait)
		select {
		case folder, open := <-folders:
			if !open {
				return ctx.Err()
			}
			reports = read.Read(folder)
			known = true
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}
