package machines

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
)

// WorkloadEntries stores the WorkloadEntries of machines: in Kubernetes, or as records if the configuration comes from
// files alone.
type WorkloadEntries interface {
	// Want sets the target states of all entries.
	Want(all map[Name]Wanted)
	// There returns the known registered entries, and a channel that is closed when they change.
	There() ([]WorkloadEntry, <-chan struct{})
}

// DefaultGrace is the time for which an entry stays without a connected machine.
const DefaultGrace = 10 * time.Second

// tick is the longest pause between two decisions without changes.
const tick = 10 * time.Second

// StepsApart is the least time between two decisions. Each decision reads all machines, so frequent changes of one
// account must not multiply its cost.
const StepsApart = 200 * time.Millisecond

// maxProblems bounds the machines in problems.
const maxProblems = 50

// Leader keeps the entries in accordance with the replicas' reports. Its methods may be called from any goroutine.
type Leader struct {
	Grace time.Duration
	// OwnOnly means that the health of entries written by users cannot be stored, because they are in files. A problem
	// names such machines.
	OwnOnly  bool
	Log      *slog.Logger
	problems atomic.Pointer[[]Problem]
}

// Problems returns the problems of the present term.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Run is one term. It returns when ctx ends. An error means that the folder cannot be followed.
func (l *Leader) Run(ctx context.Context, store *kv.Store, entries WorkloadEntries) error {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return err
	}
	defer l.problems.Store(nil)
	registry := NewRegistry(l.Grace)
	read, reports := Reports[Machine]{Of: func(m Machine) Machine { return m }, Log: l.Log}, []Machine(nil)
	known := false // the replicas' reports were read; no decision is made before
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
					problems = append(problems, Problem{m, "its health is not kept: the WorkloadEntry is in a file (WORKLOAD_ENTRY is for Kubernetes)"})
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
