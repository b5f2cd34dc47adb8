package kube

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// recorder records the emissions of a Source: the objects that exist according to them, and all events.
type recorder struct {
	t *testing.T
	s *Source

	mu      sync.Mutex
	objects map[object.ID]*object.Object
	events  []object.Event
	synced  bool
	changed chan struct{} // closed when something is emitted
}

// hear runs a source until the test ends.
func hear(t *testing.T, s *Source) *recorder {
	t.Helper()
	e := &recorder{t: t, s: s, objects: map[object.ID]*object.Object{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, e.emit) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the source does not end")
		}
	})
	return e
}

const patience = time.Minute

func (e *recorder) emit(events []object.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range events {
		switch event.Op {
		case object.Put:
			e.objects[event.ID] = event.Object
		case object.Delete:
			delete(e.objects, event.ID)
		case object.Synced:
			e.synced = true
		case object.Broken:
		default:
			e.t.Errorf("emitted %v", event)
		}
	}
	e.events = append(e.events, events...)
	close(e.changed)
	e.changed = make(chan struct{})
}

// until waits until check, which is called with the lock, answers with nothing.
func (e *recorder) until(check func() string) {
	e.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		e.mu.Lock()
		wrong, changed := check(), e.changed
		e.mu.Unlock()
		if wrong == "" {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			e.t.Fatalf("%s; problems: %v", wrong, e.s.Problems())
		}
	}
}

func (e *recorder) untilSynced() {
	e.t.Helper()
	e.until(func() string {
		if !e.synced {
			return "not everything was emitted"
		}
		return ""
	})
}

// untilProblem waits until there is a problem of a code, or none at all.
func (e *recorder) untilProblem(code problem.Code) {
	e.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		all := e.s.Problems()
		if code == "" && len(all) == 0 || slices.ContainsFunc(all, func(p object.Problem) bool { return code != "" && p.Code == code }) {
			return
		}
		if time.Now().After(until) {
			e.t.Fatalf("problems %v, want %q", all, code)
		}
	}
}
