// Package front defines the interface of fronts. A scope is the outbound configuration of a group of proxies, and its
// host table contains the hosts that these proxies may reach. A front derives the listeners and route configurations of
// a scope from the host table. Each kind of proxy has a front, in a package below this one. Fronts do not import each
// other.
//
// Owns: nothing. Reads: plan/host. Never: serves the needs of a single kind of proxy.
package front

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Patched is implemented by Specs to which patches of EnvoyFilters may apply. A Spec has all inputs of one resource.
// The method Patched reports whether patches may change the resource that is built from the Spec.
type Patched interface{ Patched() bool }

// Frozen calls f with each patched Spec of a front's listeners, route configurations and virtual hosts. The Specs are
// those at the call of Front.Freeze. A Frozen is never nil. Any goroutine may call it.
type Frozen func(f func(spec any))

// Front plans the listeners and route configurations of one scope from the hosts of its host table. Only the planner's
// goroutine may use it. A variation contains the resources of a scope that differ for proxies with certain inputs, such
// as labels.
//
// In each step the planner calls Read, plans the hosts of the step in the host table, and calls Host or Endpoints for
// each of them. After that, the planner calls Finish, Variant for each variation, and Done. Methods call the function
// yield, which is never nil, between two pieces of work. The planner then does urgent work.
type Front interface {
	// Read replaces the input that the front plans with.
	Read(in *input.Input)
	// Touched reports whether a change affects the front as a whole, so that the scope has to be planned from scratch.
	// It may be called outside of a step. It ignores records that the key of the scope names, which the planner checks.
	// The arguments describe the change:
	//
	//   - readers: the changed records other than services
	//   - services: the changed services
	//   - ports: the hosts whose endpoints have changed ports
	//   - served: the hosts with changed services; a provider of external authorization may be among them
	Touched(readers, services map[model.Key]bool, ports, served map[string]bool) bool
	// Host plans the listeners and virtual hosts of a host again. The second parameter has the types of resources that
	// may have changed. If the result is false, the planner removes the host from the host table, unless the host has a
	// service.
	Host(name string, what input.Types, yield func()) (uses bool)
	// Endpoints plans the listeners of a host again after a change of its endpoints alone.
	Endpoints(h *host.Host, yield func())
	// TelemetryChanged makes Finish decide the telemetry of listeners again.
	TelemetryChanged()
	// Finish plans the listeners and route configurations that the hosts of the step have touched.
	Finish(yield func())
	// Variant plans the resources that differ for the proxies of a variation, and stores them in the variation's layer.
	// It is called after Finish. If first is true, it plans all resources, otherwise at least those that the step has
	// touched.
	Variant(v *host.Variation, first bool, yield func())
	// Vary is called in place of Variant with the inputs of a variation whose layer was planned by a fork of the front.
	Vary(inputs view.Inputs)
	// Forget drops the front's data about a variation's inputs. It is called when no proxy has these inputs any more.
	Forget(inputs view.Inputs)
	// Done ends the step.
	Done()
	// Fork returns a copy of the front and its host table, with another scope key and another layer. Changes of one
	// front do not affect the other. Fork must not be called within a step.
	Fork(key view.Scope, to *layer.Layer) (Front, *host.Table)

	// Explain returns the Spec of a listener or a route configuration. Values that name the objects behind the resource
	// may follow the Spec. Explain returns the Specs for the proxies of a variation. A nil variation means the proxies
	// without inputs. The result is nil if the front has no such resource. The caller owns the slice.
	Explain(of xds.Ref, v *host.Variation) []any
	// Serving returns the virtual hosts of the hosts that the predicate selects, as the proxies of a variation receive
	// them. A nil variation means the proxies without inputs. The virtual hosts are sorted by the name of the route
	// configuration.
	Serving(named func(host string) bool, v *host.Variation) []host.Routed
	// Problems returns the problems found in the last plan. The caller owns the map.
	Problems() input.Problems
	// Freeze returns a snapshot of the patched Specs. It must not be called within a step.
	Freeze() Frozen
	// Removals calls f for each listener, and for each cluster without a host, that a patch removes as a whole. Such
	// resources are not planned.
	Removals(f func(input.Removal))
	// Describe calls the function line, which is like fmt.Printf, for each decision of the front, in no defined order.
	// The decisions include resources that are not published. Tests compare fronts by these lines.
	Describe(line func(format string, args ...any))
}
