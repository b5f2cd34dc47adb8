package main

import (
	"context"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// duty is something that the leader does beside the loop. What it leaves out is nil: nobody asks which duties there are.
type duty struct {
	lead     func(ctx context.Context, epoch kv.Epoch) // one term; it returns when ctx ends
	problems func() []object.Problem                   // those of this process's term
	origin   *origin.Origin                            // of objects that it emits: when a term ends the loop forgets them, and the next term begins again
}

// problemsOf are those of all duties.
func problemsOf(duties []duty) (all []object.Problem) {
	for _, d := range duties {
		if d.problems != nil {
			all = append(all, d.problems()...)
		}
	}
	return all
}
