package main

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"time"

	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/embedded"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// opened is the open store of a process. It includes the embedded etcd, if the process runs one.
type opened struct {
	*kv.Store              // nil: the process needs no store
	server    []loop.Task  // tasks that run the embedded etcd; empty: no embedded etcd
	closed    func() error // closes the store, and ends the embedded etcd
	// room returns the reason why the embedded etcd writes nothing, such as a full disk. While etcd writes, the reason
	// is empty. Without an embedded etcd, room is nil.
	room func() string
}

// openStore connects to etcd, or starts the embedded etcd. For a process without a store it does neither. The caller
// must call opened.closed.
func openStore(c *config, log *slog.Logger) (opened, error) {
	if c.storeless() {
		return opened{closed: func() error { return nil }}, nil
	}
	if c.dataDir != "" {
		etcd, err := embedded.Start(embedded.Config{Mesh: c.mesh, Revision: c.env.revision, Dir: c.dataDir, Logger: log})
		if err != nil {
			return opened{}, err
		}
		return opened{Store: etcd.Store, server: []loop.Task{{Name: "etcd", Run: etcd.Run}}, closed: etcd.Close, room: etcd.Room}, nil
	}
	cfg, err := c.etcd.Config()
	if err != nil {
		return opened{}, err
	}
	cfg.Mesh, cfg.Revision, cfg.Logger = c.mesh, c.env.revision, log
	store, err := kv.Open(cfg)
	if err != nil {
		return opened{}, err
	}
	return opened{Store: store, closed: store.Close}, nil
}

func newMirror(c *config, store *kv.Store, room func() string, log *slog.Logger, t *telemetry) (*mirror.Mirror, error) {
	disk, err := c.snapshot(room)
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return mirror.New(mirror.Config{Source: store, Logger: log, Disk: disk, Hooks: mirror.Hooks{
		Published: func(c mirror.Change) {
			at := c.Committed
			if at.IsZero() {
				at = time.Now()
			}
			t.commits.Saw(c.New.Revision(), at)
			obs.Revision.Set(float64(c.New.Revision()))
			traceMirror(t.tracer, c)
			t.changes.Published(c)
		},
		Alarm: func(err error) {
			obs.StoreAlarm.WithLabelValues("identity").Set(flag(err != nil))
		},
		Held: countHeld,
		Contact: func(err error) {
			obs.StoreAlarm.WithLabelValues("away").Set(flag(err != nil))
		},
	}})
}

// countHeld sets the metric of held kinds. The last good records of a held kind stay in use, because a writer other
// than the leader changed its stored records.
func countHeld(held []mirror.Held) {
	obs.HeldKinds.Reset()
	for _, h := range held {
		kind := h.Kind
		if _, known := model.ParseKind(kind); !known {
			kind = "unknown" // names of unknown kinds may be anything
		}
		obs.HeldKinds.WithLabelValues(kind).Set(1)
	}
	obs.StoreAlarm.WithLabelValues("contents").Set(flag(len(held) > 0))
}

// snapshot returns the file in which a replica saves its snapshot of the store; nil without --state-dir. While room
// returns a reason, the file is not written, because the embedded etcd needs the disk space. The error reports that the
// folder cannot be made.
func (c *config) snapshot(room func() string) (*mirror.Disk, error) {
	if c.stateDir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.stateDir, 0o700); err != nil {
		return nil, err
	}
	mesh := c.mesh
	if own := c.env.revision; own != kv.DefaultRevision {
		mesh = path.Join(mesh, own) // a snapshot of another revision is useless
	}
	return &mirror.Disk{Path: filepath.Join(c.stateDir, "snapshot"), Mesh: mesh, MaxAge: c.snapshotAge, Room: room}, nil
}

// flag returns 1 for true and 0 for false, as the value of a metric.
func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// spacePart returns the task that watches the size of etcd. It also returns a note for operators, which appears while
// etcd is almost full.
func spacePart(s *kv.Space) part {
	return part{tasks: []loop.Task{{Name: "space", Run: s.Run}}, notes: []func() []string{func() []string {
		if text, _ := s.Warning(); text != "" {
			return []string{text}
		}
		return nil
	}}}
}

// awayProblems returns the entry of /debug/problems for an etcd that does not answer. The argument why is the reason.
// If why is nil, etcd answers and the result is nil.
func awayProblems(why error) []inspect.Problem {
	if why == nil {
		return nil
	}
	return []inspect.Problem{{Object: "etcd", Location: "etcd",
		Code: problem.Unreadable, Severity: problem.Error,
		Message: "does not answer; the last state that was read stays in effect: " + why.Error()}}
}

// killProblems returns the entry of /debug/problems about kills of this process because of its memory. It returns nil
// if there were no recent kills. The argument is nil in a process without role xds; the result is then nil too.
func killProblems(k *memory.Kills) []inspect.Problem {
	if k == nil || k.Problem() == "" {
		return nil
	}
	return []inspect.Problem{{Object: "memory", Location: "plan", Code: problem.NotAllowed, Severity: problem.Warning,
		Message: k.Problem()}}
}

// spaceProblems returns the entry of /debug/problems about the size of etcd. It returns nil while etcd has enough
// space.
func spaceProblems(s *kv.Space) []inspect.Problem {
	text, full := s.Warning()
	if text == "" {
		return nil
	}
	severity := problem.Warning
	if full {
		severity = problem.Error
	}
	return []inspect.Problem{{Object: "etcd", Location: "etcd", Code: problem.NotAllowed, Severity: severity, Message: text}}
}
