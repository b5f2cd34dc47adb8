// Package gateway is the front of gateways: Envoys of type router.
//
// The front publishes the clusters and assignments of all hosts that are exported to the gateway's namespace, and the
// listeners and clusters that EnvoyFilters add in the context GATEWAY, with the route configurations that these
// listeners ask for. Listeners of Gateways are not served yet.
//
// Owns: the route configurations of each scope.  Reads: plan/host.  Never: which service or cluster a host has.
package gateway

import (
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Front is the front of one scope.
type Front struct {
	envoy.Outbound
	hosts    *host.Table
	routes   *routes.Table
	problems input.Problems
}

// New makes the front of a scope, and its host table, without hosts. The front plans the resources that stay the same
// for as long as the scope exists.
func New(in *input.Input, key view.Scope, patches input.PatchSet, to *layer.Layer) (*Front, *host.Table) {
	form := host.Envoy(networkingv1.EnvoyFilter_GATEWAY, names(key)...)
	f := &Front{Outbound: envoy.Outbound{In: in, Layer: to, Key: key, Side: form.Side, Patches: patches}, problems: input.Problems{}}
	f.hosts = host.New(in, key, form, []*host.Imports{host.ImportAll()}, patches, to)
	f.routes = routes.New(f.routesScope(), f)
	var found []input.Problem
	f.PlanAdded(func(name string) { f.routes.Use(envoy.ConfigNamed(name), 1) }, &found)
	f.PlanStatic(&found)
	f.problems.Set("scope", found)
	return f, f.hosts
}

// names lists the scope's Gateways as VirtualServices name them.
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

// Fork implements front.Front.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	next := *f
	next.Key, next.Layer, next.problems = key, to, f.problems.Clone()
	next.hosts = f.hosts.Fork(key, []*host.Imports{host.ImportAll()}, to)
	next.routes = f.routes.Fork(next.routesScope(), &next)
	return &next, next.hosts
}

// Read implements front.Front.
func (f *Front) Read(in *input.Input) { f.In, f.routes.In = in, in }

// Host implements front.Front: no listener depends on a host.
func (f *Front) Host(string, input.Types, func()) (uses bool) { return false }

// Endpoints implements front.Front: no listener depends on endpoints.
func (f *Front) Endpoints(*host.Host, func()) {}

// Report implements front.Front: no listener is planned that reports traffic.
func (f *Front) Report() {}

// Finish implements front.Front.
func (f *Front) Finish(pause func()) { f.routes.Finish(pause) }

// Variant implements front.Front.
func (f *Front) Variant(v *host.Variation, first bool, pause func()) {
	f.routes.Vary(v, nil, first, pause)
}

// Vary implements front.Front: the front keeps nothing of a variation.
func (f *Front) Vary(view.Inputs) {}

// Forget implements front.Front.
func (f *Front) Forget(view.Inputs) {}

// Done implements front.Front.
func (f *Front) Done() { f.routes.Done() }

// Problems implements front.Front.
func (f *Front) Problems() input.Problems { return f.problems.Clone() }

// Explain implements front.Front. The Specs of listeners that EnvoyFilters add are the layer's.
func (f *Front) Explain(of xds.Ref, v *host.Variation) []any {
	if of.Type == xds.Route {
		return f.routes.Explain(of.Name, v)
	}
	return nil
}

// Freeze implements front.Front.
func (f *Front) Freeze() front.Frozen { return f.routes.Freeze() }

// Describe implements front.Front.
func (f *Front) Describe(line func(format string, args ...any)) { f.routes.Describe(line) }

// Rivals implements routes.Names: each domain belongs to one virtual host.
func (f *Front) Rivals(_ routes.Config, _ *routes.VirtualHost, _ string, ids []string) []string {
	return ids
}

// SameRank implements routes.Names.
func (f *Front) SameRank(_, _ *routes.VirtualHost) bool { return true }

// Yields implements routes.Names.
func (f *Front) Yields(_, _ *routes.VirtualHost) (yields, reported bool) { return false, false }

// Blame implements routes.Names: the VirtualService of the first rule.
func (f *Front) Blame(vh *routes.VirtualHost) model.Key {
	if rules := vh.Rules.All(); len(rules) > 0 {
		return rules[0].VirtualService.Key
	}
	return model.Key{}
}
