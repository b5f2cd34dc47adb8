package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Task is one function for loop.Run. The field Run runs until its context ends or it fails. The error of loop.Run
// begins with Name.
type Task struct {
	Name string
	Run  func(context.Context) error
}

// ErrPanic is wrapped by the error of a task that panicked.
var ErrPanic = errors.New("panic")

// Run runs tasks concurrently until all have returned. A task that fails, panics (ErrPanic), or returns before ctx ends
// also ends the others. Run returns the error of the first such task, with its name. After the end of ctx, returning
// nil or the context's error is not a failure: if all tasks do so, Run returns nil. Without tasks it returns nil at
// once.
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
				err = errors.New("returned before the context ended")
			}
			once.Do(func() { first = fmt.Errorf("%s: %w", task.Name, err) })
			cancel()
		})
	}
	running.Wait()
	return first
}

// protect runs a task, and returns a panic as an error with the stack.
func protect(ctx context.Context, task Task) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, fault, debug.Stack())
		}
	}()
	return task.Run(ctx)
}
