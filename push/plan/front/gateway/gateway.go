// Package gateway is the front of gateways (Envoys of type router). A front plans listeners and route configurations.
//
// push/gateways merges the servers of the Gateways that select a router into listeners. The front plans:
//   - filter chains, with one fragment for each, and the listeners with these chains (listeners.go, connections.go)
//   - route configurations with istiod's names (configs.go). Their virtual hosts are the intersections of the hosts of
//     servers with the hosts of VirtualServices that are bound to the servers' Gateways (virtualhosts.go).
//     push/plan/routes plans them, virtual host by virtual host.
//
// A scope is the configuration of a group of equal routers. The key of a scope names its Gateways, policies and
// settings (view.Scope.Gateways, view.Edge). So Gateways, policies and settings stay unchanged during the life of the
// scope. An edit of a Gateway or of a policy plans the scope from scratch, on an unpublished copy. The pool returns the
// same fragments for equal chains and virtual hosts. An edit of a VirtualService or of a service plans only the
// affected virtual hosts and chains again. The edge of a scope contains the records and settings, beside Gateways, that
// decide the listeners of a router.
//
// Owns: the listeners and route configurations of each scope. Reads: plan/host, plan/inbound for the edge. Never:
// chooses the services or clusters of a host.
package gateway

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// side is the EnvoyFilter context of gateways.
const side = networkingv1.EnvoyFilter_GATEWAY

// Front implements front.Front for one scope of routers.
type Front struct {
	envoy.Outbound
	hosts    *host.Table
	imports  []*host.Imports
	routes   *routes.Table
	problems input.Problems
	edge     *inbound.Edge      // replaced, never changed in place
	reports  bool               // the reports of the edge have to be decided again in this step
	configs  map[string]*config // route configurations by name; neither the map nor the values change
	stating  stating            // an index of configs; never changes
	// misdirects has the route configurations whose misdirected hosts have to be decided again in this step.
	misdirects map[string]bool
	sockets    []*socket
	// connecting has the hosts and the destinations of VirtualServices with tcp or tls rules that chains were made
	// from.
	connecting map[string]bool
}

// New returns the front of a scope with the given key, and the host table of the scope. The front and the table have no
// hosts yet. New plans the resources that are constant during the life of the scope, and stores them in the layer dst.
// The parameter patches has the EnvoyFilter patches of the routers. Front.Problems returns the problems found.
func New(in *input.Input, key view.Scope, patches input.PatchSet, dst *layer.Layer) (*Front, *host.Table) {
	form := host.Envoy(side, names(key)...)
	form.BySNI = passesBySNI(in, key)
	form.Endpoints = true // connections are not redirected to a router, so their original destination is useless
	form.Guarded = !key.Edge.Value().Local
	f := &Front{Outbound: envoy.Outbound{In: in, Layer: dst, Key: key, Side: form.Side, Patches: patches}, problems: input.Problems{},
		connecting: map[string]bool{}, misdirects: map[string]bool{}}
	f.imports = []*host.Imports{importsOf(in, key, patches)}
	f.hosts = host.New(in, key, form, f.imports, patches, dst)
	f.routes = routes.New(f.routesScope(), f)
	f.edge = inbound.NewEdge(in, key.Edge.Value(), patches)
	var found []input.Problem
	f.PlanAdded(func(name string) { f.routes.Use(f.configNamed(name), 1) }, &found)
	f.PlanStatic(&found)
	f.open(&found)
	f.problems.Set("scope", slices.Concat(found, f.edge.Problems(), f.unboundPorts()))
	for _, c := range f.configs {
		f.decideFixed(c)
	}
	return f, f.hosts
}

// names returns the scope's Gateways in the form that VirtualServices use, "namespace/name".
func names(key view.Scope) (all []string) {
	for _, of := range key.Gateways.All() {
		all = append(all, of.Namespace+"/"+of.Name)
	}
	return all
}

// routesScope returns the common inputs of the scope's route configurations.
func (f *Front) routesScope() routes.Scope {
	return routes.Scope{In: f.In, Layer: f.Layer, Hosts: f.hosts, Patches: f.Patches, Problems: f.problems,
		Caps: envoy.VirtualHostCaps(f.Key), Proxy: f.Key.Routes}
}

// Fork implements front.Front: it returns an independent copy of the front and its host table, with another scope key
// and another layer.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	next := *f
	next.Key, next.Layer, next.problems = key, to, f.problems.Clone()
	next.imports = []*host.Imports{f.imports[0].Fork()}
	next.hosts = f.hosts.Fork(key, next.imports, to)
	next.routes = f.routes.Fork(next.routesScope(), &next)
	next.connecting, next.misdirects, next.sockets = maps.Clone(f.connecting), maps.Clone(f.misdirects), nil
	for _, s := range f.sockets {
		same := *s
		same.bySNI = maps.Clone(s.bySNI)
		next.sockets = append(next.sockets, &same)
	}
	return &next, next.hosts
}

// Read implements front.Front: it replaces the input that the front plans with.
func (f *Front) Read(in *input.Input) { f.In, f.routes.In = in, in }

// Touched implements front.Front: it reports whether a change affects the edge. The edge depends on policies,
// extensions, services that select the router's Pod, and extension providers.
func (f *Front) Touched(readers, services map[model.Key]bool, ports, served map[string]bool) bool {
	return f.edge.Touched(readers, services, ports, served)
}

// Host implements front.Front: it plans the virtual hosts of a host again, and marks the listeners to be planned in
// Finish. The result is always false, so the planner removes hosts without a service.
func (f *Front) Host(name string, what input.Types, yield func()) (uses bool) {
	if what.Has(input.CDS) && slices.Contains(f.edge.Reports.Hosts, name) {
		f.TelemetryChanged()
	}
	if what.Has(input.RDS) {
		for _, c := range f.stating.configs(name) {
			for _, domain := range c.domains(name) {
				f.decide(c, domain)
				yield()
			}
		}
	}
	if what.Has(input.CDS | input.LDS) {
		f.passBySNI(name)
	}
	if what.Has(input.LDS) && f.connects(name) {
		for _, s := range f.sockets {
			s.stale = s.stale || s.connects()
		}
	}
	return false
}

// Endpoints implements front.Front: it plans the chains by SNI of a host again. There is such a chain only if an
// endpoint accepts mTLS.
func (f *Front) Endpoints(h *host.Host, _ func()) { f.passBySNI(h.Name) }

// TelemetryChanged implements front.Front: Finish decides the telemetry again.
func (f *Front) TelemetryChanged() { f.reports = true }

// report decides the telemetry of listeners again. If the telemetry differs, all listeners are planned again.
func (f *Front) report() {
	was := f.edge
	f.edge, f.reports = was.Again(f.In), false
	if f.edge.Reports.Spec == was.Reports.Spec {
		return
	}
	passed := map[string]bool{}
	for _, s := range f.sockets {
		s.stale = true
		for name := range s.bySNI {
			passed[name] = true
		}
	}
	for name := range passed {
		f.passBySNI(name)
	}
}

// Finish implements front.Front: it plans the marked listeners and route configurations.
func (f *Front) Finish(yield func()) {
	if f.reports {
		f.report()
	}
	f.problems.Set("telemetry", f.edge.Reports.Problems)
	for _, s := range f.sockets {
		if s.stale {
			f.plan(s)
			yield()
		}
	}
	f.decideMisdirected()
	f.routes.Finish(yield)
}

// Variant implements front.Front: it plans the route configurations that differ for a variation.
func (f *Front) Variant(v *host.Variation, first bool, yield func()) {
	ids := map[string][]string{}
	for name := range v.ReroutedHosts() {
		for _, c := range f.stating.configs(name) {
			ids[c.Name] = append(ids[c.Name], c.domains(name)...)
		}
	}
	f.routes.Vary(v, ids, first, yield)
}

// Vary implements front.Front. The front stores nothing about variations.
func (f *Front) Vary(view.Inputs) {}

// Forget implements front.Front. The front stores nothing about variations.
func (f *Front) Forget(view.Inputs) {}

// Done implements front.Front: it ends the step.
func (f *Front) Done() { f.routes.Done() }

// Problems implements front.Front: it returns the problems found in the last plan. The caller owns the map.
func (f *Front) Problems() input.Problems { return f.problems.Clone() }

// Freeze implements front.Front: it returns a snapshot of the patched Specs, for any goroutine.
func (f *Front) Freeze() front.Frozen {
	var specs []any
	for _, s := range f.sockets {
		if p, is := s.Unit.Spec.(front.Patched); is && p.Patched() {
			specs = append(specs, p)
		}
	}
	routes := f.routes.Freeze()
	return func(found func(spec any)) {
		for _, spec := range specs {
			found(spec)
		}
		routes(found)
	}
}
