package normal

import (
	"context"

	"navarch.io/navarch/store/object"
)

// ObjectUntil is Object for an author who waits for the answer. If the context ends before the object is normalised,
// ObjectUntil returns soon, with the context's error.
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

// ended is the panic by which report.step leaves the checks of an object.
type ended struct{ cause error }

// stepsPerLook is the number of steps between two looks at the context.
const stepsPerLook = 32

// step is called for each element of lists that may be large. It ends the normalisation if nobody waits for it.
func (r *report) step() {
	if r.steps++; r.steps%stepsPerLook == 0 {
		r.look()
	}
}

// look ends the normalisation if nobody waits for it.
func (r *report) look() {
	if r.waiting == nil {
		return
	}
	if err := r.waiting.Err(); err != nil {
		panic(ended{err})
	}
}
