package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"navarch.io/navarch/store/loop"
)

// Nothing that was put is lost, whatever the reader's delay, and a lagging reader costs one value.
func TestBoxMergesWithoutLoss(t *testing.T) {
	box := loop.NewBox(func(a, b int) int { return a + b })
	const writers, each = 8, 1000
	var putting sync.WaitGroup
	for range writers {
		putting.Go(func() {
			for range each {
				box.Put(1)
			}
		})
	}
	sum, takes := 0, 0
	for sum < writers*each {
		n, err := box.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum += n
		takes++
	}
	putting.Wait()
	if _, more := box.Take(); more || sum != writers*each {
		t.Fatalf("took %d in %d takes (more: %t), want %d", sum, takes, more, writers*each)
	}
}

func TestBoxOrderAndLatest(t *testing.T) {
	box := loop.NewBox(func(a, b string) string { return a + b })
	box.Put("a")
	box.Put("b")
	<-box.Ready()
	if got, ok := box.Take(); !ok || got != "ab" {
		t.Fatalf("took %q, %t", got, ok)
	}
	if got, ok := box.Take(); ok {
		t.Fatalf("an empty box gave %q", got)
	}
}

func TestBoxGetEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() { _, err := loop.NewBox(func(_, next int) int { return next }).Get(ctx); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func waits(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestRunFirstErrorEndsTheOthers(t *testing.T) {
	broken := errors.New("broken")
	err := loop.Run(t.Context(), loop.Task{Name: "waits", Run: waits},
		loop.Task{Name: "fails", Run: func(context.Context) error { return broken }})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "fails: ") {
		t.Fatalf("got %v", err)
	}
}

func TestRunPanicBecomesError(t *testing.T) {
	err := loop.Run(t.Context(), loop.Task{Name: "waits", Run: waits},
		loop.Task{Name: "panics", Run: func(context.Context) error { panic("a broken invariant") }})
	if !errors.Is(err, loop.ErrPanic) || !strings.Contains(err.Error(), "panics: panic: a broken invariant") {
		t.Fatalf("got %v", err)
	}
}

func TestRunCleanShutdownIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := loop.Run(ctx, loop.Task{Name: "waits", Run: waits}, loop.Task{Name: "nil", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}); err != nil {
		t.Fatal(err)
	}
	if err := loop.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A loop that stops by itself would leave the rest running without it.
func TestRunEarlyReturnIsAnError(t *testing.T) {
	err := loop.Run(t.Context(), loop.Task{Name: "waits", Run: waits}, loop.Task{Name: "early", Run: func(context.Context) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "early: returned before") {
		t.Fatalf("got %v", err)
	}
}

// An error during the stop is reported too.
func TestRunErrorOnShutdown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("could not save")
	err := loop.Run(ctx, loop.Task{Name: "saves", Run: func(ctx context.Context) error { <-ctx.Done(); return broken }})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
}
