// Package front defines the interface between the host table and the fronts, which derive listeners and route
// configurations from hosts. Each kind of proxy has a front, in a package below this one; no front knows another.
//
// Owns: nothing.  Reads: plan/host.  Never: the needs of a single kind of proxy.
package front

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Patched is a Spec that reports whether patches may change the resource that is built from it.
type Patched interface{ Patched() bool }

// Frozen is a walk: it calls f with each Spec of a front's listeners, route configurations and virtual hosts that
// patches may change. Any goroutine may call it.
type Frozen func(f func(spec any))

// Front plans the listeners and route configurations of one scope from its hosts. Only the planner's goroutine may use
// it. A step calls Read, then Host or Endpoints for each host that was planned again, after all of them are resolved,
// and then Finish and Done. Functions named yield are called between two pieces of work, so that the planner can do
// urgent work in between.
type Front interface {
	// Read replaces the input that the front plans with.
	Read(in *input.Input)
	// Touched reports whether a change reaches what the front was made with, beside the records that its scope names: of
	// records that it read, of services of the proxies' Pods, of hosts whose endpoints name their ports, and of hosts of
	// providers. The scope is planned from scratch then. It may be called outside a step.
	Touched(readers, services map[model.Key]bool, ports, served map[string]bool) bool
	// Host plans a host again that may have changed in the types named by what. It reports whether the front has a
	// listener or a virtual host of it.
	Host(name string, what input.Types, yield func()) (uses bool)
	// Endpoints plans a host again of which only the endpoints changed.
	Endpoints(h *host.Host, yield func())
	// TelemetryChanged announces, before Finish, that the telemetry of listeners may have changed.
	TelemetryChanged()
	// Finish plans everything that the hosts of the step have touched.
	Finish(yield func())
	// Variant plans, into the layer of a variation, the resources that differ for its proxies. With first it plans all
	// resources, otherwise, after Finish, those that the hosts of the step may have changed.
	Variant(v *host.Variation, first bool, yield func())
	// Vary replaces Variant for a variation that a fork has planned already.
	Vary(inputs view.Inputs)
	// Forget drops everything about the inputs of a variation, when no proxy has these inputs any more.
	Forget(inputs view.Inputs)
	// Done ends the step and clears its marks.
	Done()
	// Fork returns a copy of the front and its host table, for a scope key and with another layer. Changes of one front do
	// not affect the other. It must not be called within a step.
	Fork(key view.Scope, to *layer.Layer) (Front, *host.Table)

	// Explain returns the Specs of a listener or a route configuration: its own first, then those that name the objects
	// which decided it. The result is nil if there is no resource of this name. A nil variation means proxies without
	// inputs.
	Explain(of xds.Ref, v *host.Variation) []any
	// Problems returns a copy of the problems found in the last plan.
	Problems() input.Problems
	// Freeze returns a walk over the present plan. It must not be called within a step.
	Freeze() Frozen
	// Removals calls f with the listeners, and with the clusters that belong to no host, that patches remove as a whole.
	// They are not planned.
	Removals(f func(input.Removal))
	// Describe calls line for each decision of the front, published or not, in no order. Tests compare fronts by these
	// lines.
	Describe(line func(format string, args ...any))
}
