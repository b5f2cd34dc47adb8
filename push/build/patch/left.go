package patch

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Left is a patch that a resource is drawn without. It reads as the Problem that it is: object, field and why.
type Left struct {
	model.Problem
	Resource string // kind and name, as Envoy has it: "listener 0.0.0.0_80"
}

// Unwrap is the Problem.
func (l Left) Unwrap() error { return l.Problem }

// left says that a patch is left out of a resource, and why; what names no field of the patch is wrong with its value.
func left(p model.Patch, resource string, err error) error {
	return Left{Problem: model.ProblemOf(fault(p, "patch.value", err), p.Filter.Key), Resource: resource}
}

// leaving is the patches that one resource is drawn without.
type leaving struct {
	resource string
	faults   []error
}

// out notes that a patch is left out, and says whether it is; nil: it is not.
func (l *leaving) out(p model.Patch, err error) bool {
	if err != nil {
		l.faults = append(l.faults, left(p, l.resource, err))
	}
	return err != nil
}

// keep is a resource as draw makes it with all of the patches, or, where Envoy would refuse that, with those that are
// not to blame. The others are found by halving, so that a few cost little; each is tried with the patches before it that
// are kept. draw makes another resource each time, and returns the faults of patches that it passed over.
func keep[M proto.Message](l *leaving, patches []model.Patch, draw func(some []model.Patch) (M, []error)) M {
	drawn, faults := draw(patches)
	err := Check(drawn)
	if err == nil {
		l.faults = append(l.faults, faults...)
		return drawn
	}
	var kept []model.Patch
	var refused []error
	var search func(some []model.Patch, err error)
	try := func(some []model.Patch) {
		with := slices.Concat(kept, some)
		drawn, _ := draw(with)
		if err := Check(drawn); err == nil {
			kept = with
		} else {
			search(some, err)
		}
	}
	search = func(some []model.Patch, err error) { // with err Envoy would refuse what they make
		if len(some) == 1 {
			refused = append(refused, left(some[0], l.resource, err))
			return
		}
		try(some[:len(some)/2])
		try(some[len(some)/2:])
	}
	if len(patches) > 0 {
		search(patches, err)
	}
	drawn, faults = draw(kept)
	l.faults = append(append(l.faults, faults...), refused...)
	return drawn
}

// keepName gives a resource its name back, and says so where the patch states another: resources are known by their names.
func keepName(p model.Patch, kind string, name *string, was string) []error {
	if *name == was {
		return nil
	}
	*name = was
	return []error{fault(p, "patch.value.name", fmt.Errorf("the name of a %s cannot be patched", kind))}
}
