package machines

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
)

// WorkloadEntries is where WorkloadEntries of machines are: in Kubernetes, or, where the configuration comes from files alone, records.
type WorkloadEntries interface {
	// Want says what is wanted of each entry, all of them.
	Want(all map[Name]Wanted)
	// There is which entries were registered, as far as is known, and a channel that is closed when that changes.
	There() ([]WorkloadEntry, <-chan struct{})
}

// DefaultGrace is for how long an entry stays that no machine is behind.
const DefaultGrace = 10 * time.Second

// tick is how often it is looked whether anything is to be decided, though nothing changed.
const tick = 10 * time.Second

// StepsApart is the least time between two decisions, each of which looks at all machines: what machines of one account do, who come and go, costs as much however many others there are.
const StepsApart = 200 * time.Millisecond

// maxProblems is how many machines are named that have no entry.
const maxProblems = 50

// Leader has entries be what the replicas report. Its methods may be called from any goroutine.
type Leader struct {
	Grace time.Duration
	// OwnOnly: of entries that somebody wrote the health cannot be kept, because they are in files; a problem names the machine.
	OwnOnly  bool
	Log      *slog.Logger
	problems atomic.Pointer[[]Problem]
}

// Problems are those of the term that this process leads in.
func (l *Leader) Problems() []Problem {
	if p := l.problems.Load(); p != nil {
		return *p
	}
	return nil
}

// Run is one term: until ctx ends. Its error is that the folder cannot be followed at all.
func (l *Leader) Run(ctx context.Context, store *kv.Store, entries WorkloadEntries) error {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return err
	}
	defer l.problems.Store(nil)
	registry := NewRegistry(l.Grace)
	read, reports := Reports[Machine]{Of: func(m Machine) Machine { return m }, Log: l.Log}, []Machine(nil)
	known := false // what the replicas report; before that nothing is decided
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
