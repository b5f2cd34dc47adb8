package normal

import (
	"context"

	"navarch.io/navarch/store/object"
)

// ObjectUntil does the same as the method Object, and stops with the context's error soon after the context ends. It
// checks the context only after every 32 steps of the work. A small object is therefore normalised completely, even if
// the context has already ended.
func (n *Normalizer) ObjectUntil(ctx context.Context, obj *object.Object, known Lookup) (result Result, err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case ended:
			result, err = Result{}, fault.cause
		default:
			panic(fault)
		}
	}()
	return n.object(&report{id: obj.ID, location: obj.Location, waiting: ctx}, obj, known), nil
}

// ended is the panic by which report.look leaves the checks of an object.
type ended struct{ cause error }

// stepsPerLook is the number of steps between two looks at the context.
const stepsPerLook = 32

// step counts one step of the work, for example one element of a list that may be large. After every 32 steps it calls
// look.
func (r *report) step() {
	if r.steps++; r.steps%stepsPerLook == 0 {
		r.look()
	}
}

// look ends the normalisation if the context of ObjectUntil has ended. Without such a context it does nothing.
func (r *report) look() {
	if r.waiting == nil {
		return
	}
	if err := r.waiting.Err(); err != nil {
		panic(ended{err})
	}
}
