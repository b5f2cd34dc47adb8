package patch

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// Left is the error of a patch that is left out of a resource. Its text is the text of the embedded Problem, which
// names the EnvoyFilter, the field and the reason.
type Left struct {
	model.Problem
	Resource string // type and name of the resource, such as "listener 0.0.0.0_80"
}

// Unwrap returns the Problem.
func (l Left) Unwrap() error { return l.Problem }

// left returns a Left for a patch, with err as the reason. If err is not a Problem, the Left names patch.value or a
// field below it.
func left(p model.Patch, resource string, err error) error {
	return Left{Problem: model.ProblemOf(fault(p, "patch.value", err), p.Filter.Key), Resource: resource}
}

// omissions collects the patches that are left out of one resource.
type omissions struct {
	resource string
	faults   []error
	trace    *Trace // nil: nothing is traced
	pause    func() // called between the filter chains of a listener; may be nil
}

// check returns the error of Check for m. If m is a listener, check calls l.pause, unless it is nil, between the filter
// chains.
func (l *omissions) check(m proto.Message) error {
	if of, is := m.(*listenerv3.Listener); is && l.pause != nil {
		return checkChains(of, l.pause)
	}
	return Check(m)
}

// omit records that a patch is left out because of err, and reports whether err is not nil.
func (l *omissions) omit(p model.Patch, err error) bool {
	if err != nil {
		l.faults = append(l.faults, left(p, l.resource, err))
	}
	return err != nil
}

// applyAccepted returns the resource that the function build makes with all patches that Envoy accepts. It records the
// refused patches in l. If Envoy would refuse the resource with all patches, applyAccepted finds the refused patches by
// bisection. Bisection is cheap if few patches are refused. Each patch is tried together with the accepted patches
// before it. The function build must return a new resource at each call, and the errors of the patches that it left
// out. The trace in l records only the patches that change the returned resource.
func applyAccepted[M proto.Message](l *omissions, patches []model.Patch, build func(some []model.Patch) (M, []error)) M {
	l.trace.keep()
	attempt := func(some []model.Patch) (M, []error) {
		l.trace.restart()
		return build(some)
	}
	built, faults := attempt(patches)
	err := l.check(built)
	if err == nil {
		l.faults = append(l.faults, faults...)
		return built
	}
	var kept []model.Patch
	var refused []error
	var search func(some []model.Patch, err error)
	try := func(some []model.Patch) {
		with := slices.Concat(kept, some)
		built, _ := attempt(with)
		if err := l.check(built); err == nil {
			kept = with
		} else {
			search(some, err)
		}
	}
	search = func(some []model.Patch, err error) { // err is the reason why Envoy would refuse the resource with these patches
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
	built, faults = attempt(kept)
	l.faults = append(append(l.faults, faults...), refused...)
	return built
}

// keepName sets *name to the original name, because the name identifies the resource. If the patch p changed the name,
// keepName returns one error. If not, it returns nil.
func keepName(p model.Patch, kind string, name *string, original string) []error {
	if *name == original {
		return nil
	}
	*name = original
	return []error{fault(p, "patch.value.name", fmt.Errorf("the name of a %s cannot be patched", kind))}
}
