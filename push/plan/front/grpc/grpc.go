// Package grpc is the front (the part of the plan for one kind of proxy) of applications that use gRPC's own xDS client
// without an Envoy. It plans a listener for each name and port under which clients may call a host, and a route
// configuration for each host and port. Listeners have names of the form host:port, and route configurations have names
// of the form outbound|port||host, as in Istio's control plane (pilot/pkg/networking/grpcgen). Clients request each
// resource by its name.
//
// Owns: the listeners and route configurations of each scope.
// Reads: the hosts of plan/host.
// Never: chooses the services, rules or clusters of a host; plans the resources that servers request (plan/inbound).
//
// A scope is the outbound configuration of a group of clients. The resources of a host depend on the host and on the
// destinations of its routes. They also depend on other hosts whose full name equals a short name of the host. The
// resources of one host are planned as one immutable value that scopes share.
package grpc

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// form describes the clusters and assignments that gRPC's client understands.
var form = host.Form{
	Gateways:   []string{virtualservice.Mesh},
	Side:       networkingv1.EnvoyFilter_SIDECAR_OUTBOUND,
	Cluster:    func(s cluster.Outbound) pool.ResourceSpec { return cluster.Proxyless{Outbound: s} },
	Assignment: func(s endpoint.Spec) pool.PiecewiseSpec { return endpoint.Proxyless{Spec: s} },
	Whole:      true,
	Endpoints:  true,
}

// Front implements front.Front for one scope of gRPC clients.
type Front struct {
	in      *input.Input
	layer   *layer.Layer
	key     view.Scope
	hosts   *host.Table
	sidecar *model.Sidecar // decides the imports by its egress listeners; nil if no Sidecar applies
	imports []*host.Imports

	called   layer.Table[called]
	reading  map[string]bool // hosts whose routes depend on labels of the client
	step     map[string]bool // hosts to be planned in this step
	problems input.Problems
}

// New returns the front and the host table of the scope with the given key. Both have no hosts yet. The argument
// sidecar is nil if no Sidecar applies. Resources are stored in the layer target. Front.Problems returns the problems
// found.
func New(in *input.Input, key view.Scope, sidecar *model.Sidecar, target *layer.Layer) (*Front, *host.Table) {
	f := &Front{in: in, layer: target, key: key, sidecar: sidecar, imports: host.ImportsOf(sidecar, key.Namespace),
		reading: map[string]bool{}, step: map[string]bool{}, problems: input.Problems{}}
	f.hosts = host.New(in, key, form, f.imports, nil, target)
	found := in.NotPatched(key.Filters)
	for _, spec := range []pool.ResourceSpec{cluster.ProxylessBlackHole{}, endpoint.Proxyless{Spec: endpoint.Spec{Cluster: xds.BlackHole}}} {
		if u, ok := in.Make(spec, model.MeshKey, &found); ok {
			target.Add(u)
		}
	}
	f.problems.Set("scope", found)
	return f, f.hosts
}

// Fork implements front.Front: it returns an independent copy of the front and its host table, with another scope key
// and another layer.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	next := *f
	if next.imports = nil; key != f.key {
		next.imports = host.ImportsOf(f.sidecar, key.Namespace)
	} else {
		for _, im := range f.imports {
			next.imports = append(next.imports, im.Fork())
		}
	}
	next.key, next.layer, next.hosts = key, to, f.hosts.Fork(key, next.imports, to)
	next.called, next.reading, next.step, next.problems = f.called.Fork(), maps.Clone(f.reading), map[string]bool{}, f.problems.Clone()
	return &next, next.hosts
}

// Read implements front.Front: it replaces the input that the front plans with.
func (f *Front) Read(in *input.Input) { f.in = in }

// Touched implements front.Front. The result is always false, because the key of the scope names all records on which
// the front as a whole depends.
func (f *Front) Touched(_, _ map[model.Key]bool, _, _ map[string]bool) bool { return false }

// Problems implements front.Front: it returns the problems found in the last plan. The caller owns the map.
func (f *Front) Problems() input.Problems { return f.problems.Clone() }

// Freeze implements front.Front. The result has no Specs, because no patches apply to these clients.
func (f *Front) Freeze() front.Frozen { return func(func(any)) {} }

// Host implements front.Front: it marks a host, which Finish then plans. It also marks the hosts that have this name as
// a short name. The result is always false, so the planner removes hosts without a service. Clients cannot resolve a
// host that only VirtualServices name.
func (f *Front) Host(name string, what input.Types, _ func()) (uses bool) {
	if what.Has(input.LDS | input.RDS) {
		f.step[name] = true
		// The name takes precedence over equal short names of other hosts, so these hosts are planned again.
		host.LongNames(name, f.key.Namespace, f.key.Domain, func(long string) { f.step[long] = true })
	}
	return false
}

// Endpoints implements front.Front. It does nothing, because listeners and routes do not depend on endpoints.
func (f *Front) Endpoints(*host.Host, func()) {}

// TelemetryChanged implements front.Front. It does nothing: applications without a proxy report their own traffic.
func (f *Front) TelemetryChanged() {}

// Vary implements front.Front. The front stores nothing about variations.
func (f *Front) Vary(view.Inputs) {}

// Forget implements front.Front. The front stores nothing about variations.
func (f *Front) Forget(view.Inputs) {}

// Finish implements front.Front: it plans the marked hosts. It removes their old resources before it adds the new
// ones, because a short name may move from one host to another.
func (f *Front) Finish(yield func()) {
	names := slices.Sorted(maps.Keys(f.step))
	for _, name := range names {
		f.layer.Replace(f.called.Get(name).units(), nil)
	}
	for _, name := range names {
		f.plan(name)
		f.layer.Replace(nil, f.called.Get(name).units())
		yield()
	}
}

// Done implements front.Front: it ends the step.
func (f *Front) Done() {
	if len(f.step) > 0 {
		f.step = map[string]bool{}
	}
}

// Variant implements front.Front: it plans the route configurations that differ for a variation (the clients with
// certain labels or other inputs). Only two kinds of hosts may differ: hosts whose rules read labels of the client, and
// hosts that the variation reroutes. There are few such hosts, so all of them are planned each time.
func (f *Front) Variant(v *host.Variation, first bool, yield func()) {
	if !first && len(f.step) == 0 {
		return
	}
	names := map[string]bool{}
	hosts := v.ReroutedHosts()
	maps.Copy(hosts, f.reading)
	for name := range hosts {
		c := f.called.Get(name)
		if c == nil {
			continue
		}
		var found []input.Problem // dropped: the scope reports the same problems
		for _, r := range c.routes {
			if u, ok := f.route(name, r.port, r.vs, f.hosts.Of(v), &found); ok && u.Res != r.Res {
				v.Layer.Add(u)
				names[u.Res.Name] = true
			}
		}
		yield()
	}
	v.Layer.Retain(xds.Route, names)
}

// Serving implements front.Front: it returns the virtual hosts of the hosts that the predicate selects, sorted by the
// name of the route configuration. A nil v stands for clients without inputs.
func (f *Front) Serving(named func(host string) bool, v *host.Variation) (all []host.Routed) {
	for name, c := range f.called.All() {
		if !named(name) {
			continue
		}
		for _, r := range c.routes {
			for _, spec := range f.Explain(xds.Ref{Type: xds.Route, Name: r.Res.Name}, v) {
				if of, is := spec.(vhost.Proxyless); is {
					all = append(all, host.Routed{Config: of.Name, Spec: of.Spec})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b host.Routed) int { return strings.Compare(a.Config, b.Config) })
	return all
}

// Explain implements front.Front: it returns the Spec of a listener or route configuration. For resources that do not
// differ in the variation, a front.TrafficSource with the host and its service follows the Spec. The result is nil if
// there is no such resource. A nil v stands for clients without inputs.
func (f *Front) Explain(of xds.Ref, v *host.Variation) []any {
	if v != nil && v.Layer.Spec(of) != nil {
		return []any{v.Layer.Spec(of)}
	}
	c := f.called.Get(f.hostOf(of))
	if c == nil {
		return nil
	}
	for _, u := range c.units() {
		if u.Res.Type == of.Type && u.Res.Name == of.Name {
			return []any{u.Spec, front.TrafficSource{Host: c.host, Service: f.hosts.Get(c.host).Service}}
		}
	}
	return nil
}

// Removals implements front.Front. It does nothing, because no patches apply to gRPC's client.
func (f *Front) Removals(func(input.Removal)) {}

// Describe implements front.Front: it calls the function line for each decision, for tests.
func (f *Front) Describe(line func(format string, args ...any)) {
	for name, c := range f.called.All() {
		for _, u := range c.units() {
			line("called %s: %v %p", name, u.Spec, u.Res)
		}
		line("reading %s: %v", name, f.reading[name])
	}
}
