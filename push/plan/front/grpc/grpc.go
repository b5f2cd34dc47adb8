// Package grpc is the front of applications that have gRPC's own xDS client and no Envoy: a listener for each name and port under which
// clients may call a host, and a route configuration for each host and port. Names are those that Istio's control plane has
// (pilot/pkg/networking/grpcgen): host:port and outbound|port||host. Clients ask for each by name.
//
// Owns: the listeners and route configurations of each scope.  Reads: plan/host.  Never: which service, rule or cluster a host has; what
// servers ask for (plan/inbound).
//
// What a host has depends on the host alone, on what its routes send to, and, for its short names, on whether there is a host that is
// called so in full. It is planned as a whole, and is a value that scopes share.
package grpc

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
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

// form is what gRPC's client takes of clusters and assignments.
var form = host.Form{
	Gateways:   []string{virtualservice.Mesh},
	Side:       networkingv1.EnvoyFilter_SIDECAR_OUTBOUND,
	Cluster:    func(s cluster.Outbound) pool.ResourceSpec { return cluster.Proxyless{Outbound: s} },
	Assignment: func(s endpoint.Spec) pool.ResourceSpec { return endpoint.Proxyless{Spec: s} },
	Whole:      true,
	Endpoints:  true,
}

// Front is the front of one scope.
type Front struct {
	in      *input.Input
	layer   *layer.Layer
	key     view.Scope
	hosts   *host.Table
	sidecar *model.Sidecar // whose egress listeners say which hosts are seen; nil: none applies
	imports []*host.Imports

	called   layer.Table[called]
	reading  map[string]bool // hosts whose routes read labels of the client
	step     map[string]bool // hosts that are to be planned, or were last planned
	problems input.Problems
}

// New makes the front of a scope, and its host table, without hosts. A Sidecar of nil means that none applies.
func New(in *input.Input, key view.Scope, sidecar *model.Sidecar, to *layer.Layer) (*Front, *host.Table) {
	f := &Front{in: in, layer: to, key: key, sidecar: sidecar, imports: host.ImportsOf(sidecar, key.Namespace), reading: map[string]bool{}, step: map[string]bool{}, problems: input.Problems{}}
	f.hosts = host.New(in, key, form, f.imports, nil, to)
	found := in.NotPatched(key.Filters)
	for _, spec := range []pool.ResourceSpec{cluster.ProxylessBlackHole{}, endpoint.Proxyless{Spec: endpoint.Spec{Cluster: xds.BlackHole}}} {
		if u, ok := in.Make(spec, model.MeshKey, &found); ok {
			to.Add(u)
		}
	}
	f.problems.Set("scope", found)
	return f, f.hosts
}

// Fork implements front.Front.
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

// Read implements front.Front.
func (f *Front) Read(in *input.Input) { f.in = in }

// Problems implements front.Front.
func (f *Front) Problems() input.Problems { return f.problems.Clone() }

// Freeze implements front.Front: there are no patches for these clients.
func (f *Front) Freeze() front.Frozen { return func(func(any)) {} }

// Host implements front.Front. A host that only VirtualServices name is nothing that can be called: its name is nowhere to be found.
func (f *Front) Host(name string, what input.Types, _ func()) (uses bool) {
	if what.Has(input.LDS | input.RDS) {
		f.step[name] = true
		host.LongNames(name, f.key.Namespace, f.key.Domain, func(long string) { f.step[long] = true }) // short names give way to full ones
	}
	return false
}

// Endpoints implements front.Front: nothing here depends on them.
func (f *Front) Endpoints(*host.Host, func()) {}

// Report implements front.Front: applications without a proxy report their traffic as they like.
func (f *Front) Report() {}

// Vary implements front.Front: nothing is kept of a variation.
func (f *Front) Vary(view.Inputs) {}

// Forget implements front.Front: a variation is all that there is of its inputs.
func (f *Front) Forget(view.Inputs) {}

// Finish implements front.Front. A short name may pass from one host to another: what is gone goes before what comes.
func (f *Front) Finish(rest func()) {
	names := slices.Sorted(maps.Keys(f.step))
	for _, name := range names {
		f.layer.Replace(f.called.Get(name).units(), nil)
	}
	for _, name := range names {
		f.plan(name)
		f.layer.Replace(nil, f.called.Get(name).units())
		rest()
	}
}

// Done implements front.Front.
func (f *Front) Done() {
	if len(f.step) > 0 {
		f.step = map[string]bool{}
	}
}

// Variant implements front.Front. Other routes than the scope's have hosts whose rules read labels of the client, and hosts that have, or
// are routed to those that have, other rules: few, so that all of them are planned.
func (f *Front) Variant(v *host.Variation, first bool, rest func()) {
	if !first && len(f.step) == 0 {
		return
	}
	names := map[string]bool{}
	hosts := v.Reached()
	maps.Copy(hosts, f.reading)
	for name := range hosts {
		c := f.called.Get(name)
		if c == nil {
			continue
		}
		var found []input.Problem // the same as the scope's
		for _, r := range c.routes {
			if u, ok := f.route(name, r.port, r.vs, f.hosts.Of(v), &found); ok && u.Res != r.Res {
				v.Layer.Add(u)
				names[u.Res.Name] = true
			}
		}
		rest()
	}
	v.Layer.Retain(xds.Route, names)
}

// Explain implements front.Front.
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
			return []any{u.Spec, front.Bringer{Host: c.host, Service: f.hosts.Get(c.host).Service}}
		}
	}
	return nil
}

// Removals implements front.Front: gRPC's client takes no patches.
func (f *Front) Removals(func(input.Removal)) {}

// Describe implements front.Front.
func (f *Front) Describe(line func(format string, args ...any)) {
	for name, c := range f.called.All() {
		for _, u := range c.units() {
			line("called %s: %v %p", name, u.Spec, u.Res)
		}
		line("reading %s: %v", name, f.reading[name])
	}
}
