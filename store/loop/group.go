package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Task is one loop. It runs until the context ends or the loop fails.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// ErrPanic is wrapped by the error of a task that panicked.
var ErrPanic = errors.New("panic")

// Run runs tasks concurrently until all have returned. The first task that fails, panics, or returns before the context
// ends also ends the others, and Run returns its error, with its name. It returns nil if all tasks returned because the
// context ended.
func Run(ctx context.Context, tasks ...Task) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		running sync.WaitGroup
		once    sync.Once
		first   error
	)
	for _, task := range tasks {
		running.Go(func() {
			err := protect(inner, task)
			switch {
			case inner.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
				return
			case err == nil:
				err = errors.New("returned without being asked to")
			}
			once.Do(func() { first = fmt.Errorf("%s: %w", task.Name, err) })
			cancel()
		})
	}
	running.Wait()
	return first
}

// protect turns a panic into an error with the stack.
func protect(ctx context.Context, task Task) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, fault, debug.Stack())
		}
	}()
	return task.Run(ctx)
}
