package machines

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/obs"
)

// Entries is where WorkloadEntries of machines are: in Kubernetes, or, where the configuration comes from files alone, records.
type Entries interface {
	// Want says what is wanted of each entry, all of them. It does not block.
	Want(all map[Name]Wanted)
	// There is which entries were registered, as far as is known, and a channel that is closed when that changes.
	There() ([]Entry, <-chan struct{})
}

// DefaultGrace is for how long an entry stays that no machine is behind.
const DefaultGrace = 10 * time.Second

// tick is how often it is looked whether anything is to be decided, though nothing changed.
const tick = 10 * time.Second

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
func (l *Leader) Run(ctx context.Context, store *kv.Store, entries Entries) error {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return err
	}
	defer l.problems.Store(nil)
	registry := NewRegistry(l.Grace)
	read, reports := map[string]report{}, []Machine(nil)
	known := false // what the replicas report; before that nothing is decided
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		there, changed := entries.There()
		wait := tick
		if known {
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
			read, reports = l.parse(read, folder)
			known = true
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// report is what one blob says.
type report struct {
	revision int64
	machine  Machine
	bad      bool
}

// parse reads the reports of a folder that are new.
func (l *Leader) parse(before map[string]report, folder kv.Folder) (map[string]report, []Machine) {
	next, all := make(map[string]report, len(folder.Blobs)), make([]Machine, 0, len(folder.Blobs))
	for _, blob := range folder.Blobs {
		one, same := before[blob.Path]
		if !same || one.revision != blob.Revision {
			one = report{revision: blob.Revision}
			var err error
			if one.machine, err = Decode(blob.Raw); err == nil && !strings.HasSuffix(blob.Path, "/"+one.machine.ID().String()) {
				err = fmt.Errorf("it says that it is of %s", one.machine.ID())
			}
			if one.bad = err != nil; one.bad {
				l.Log.Warn("what a replica reports of a machine cannot be read", obs.KeyError, fmt.Errorf("%s: %w", blob.Path, err))
			}
		}
		if next[blob.Path] = one; !one.bad {
			all = append(all, one.machine)
		}
	}
	return next, all
}
