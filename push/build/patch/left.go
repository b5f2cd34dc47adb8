package patch

import (
	"fmt"

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

// decoded reads the value of a patch, and says whether it is what Envoy would take.
func (l *leaving) decoded(p model.Patch, into proto.Message) bool {
	return !l.out(p, Decode(p, into)) && !l.out(p, Check(into))
}

// keepName gives a resource its name back, and says so where the patch states another: resources are known by their names.
func keepName(p model.Patch, kind string, name *string, was string) []error {
	if *name == was {
		return nil
	}
	*name = was
	return []error{fault(p, "patch.value.name", fmt.Errorf("the name of a %s cannot be patched", kind))}
}
