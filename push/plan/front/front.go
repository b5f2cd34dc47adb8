// Package front is the seam between the host table and what turns it into listeners and route configurations. There is a front for
// each kind of proxy, in a package of its own below this one; none knows another.
//
// Owns: nothing.  Reads: plan/host.  Never: what a single kind of proxy needs.
package front

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
)

// Patched is a Spec that says whether patches may change what is drawn of it.
type Patched interface{ Patched() bool }

// Frozen calls f with the Specs of a front's listeners, route configurations and virtual hosts that patches may change.
type Frozen func(f func(spec any))

// Front plans the listeners and route configurations of one scope from its hosts. It belongs to the goroutine of the planner. A step
// calls Read, then Host or Endpoints for each host that was planned again, all of which are resolved by then, and then Finish.
type Front interface {
	// Read has the front plan with another input from now on.
	Read(in *input.Input)
	// Host is called when a host may be another one than before, in what the types name. It says whether the front has anything of it.
	// rest is called between two pieces of that, where others may have their turn.
	Host(name string, what input.Types, rest func()) (uses bool)
	// Endpoints is called when nothing but the endpoints of a host differs.
	Endpoints(h *host.Host, rest func())
	// Report is called before Finish where what listeners report of their traffic may be something else than before.
	Report()
	// Finish plans what the hosts of the step have touched. rest is called between two pieces of that, where others may have their
	// turn.
	Finish(rest func())
	// Variant plans, into the layer of a variation, what differs for its proxies: the first time of all resources, then, after Finish, of
	// those that the hosts of the step may have changed.
	Variant(v *host.Variation, first bool, rest func())
	// Vary is called in place of Variant where a fork has planned the variation.
	Vary(inputs view.Inputs)
	// Forget is called when no proxy has the inputs of a variation any more: nothing is kept for them.
	Forget(inputs view.Inputs)
	// Done ends the step: what Finish has planned last is forgotten.
	Done()
	// Fork is a copy, with its host table, for another scope, or for the same one as it will be; its resources go to another layer.
	// Neither changes what both have. Between steps only.
	Fork(key view.Scope, to *layer.Layer) (Front, *host.Table)

	// Explain gives the Specs that made a listener or a route configuration, its own first, and what is needed beside them to name the
	// objects that decided it. Nil: there is none of this name. A variation of nil: of proxies without inputs.
	Explain(of xds.Ref, v *host.Variation) []any
	// Problems are what was found while planning, as it is now: a copy, which the front does not change.
	Problems() input.Problems
	// Freeze takes what is planned as it is, for a walk in any goroutine. Between steps only.
	Freeze() Frozen
	// Removals calls f with the listeners, and the clusters that are of no host, that patches remove as a whole: they are not planned.
	Removals(f func(input.Removal))
	// Describe writes down all that the front has decided, a line each, published or not, in no order. Tests compare fronts by it.
	Describe(line func(format string, args ...any))
}
