// Package sidecar is the front of sidecars: the listeners of a Sidecar's egress listeners, or of all services where
// no Sidecar applies, and the route configurations that they ask for.
//
// Owns: the listeners of each scope.  Reads: plan/host.  Never: which service, rule or cluster a host has.
//
// A host contributes traffic to listeners, and virtual hosts to route configurations. A listener is planned from all
// its contributions. push/plan/routes plans the route configurations.
package sidecar

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Front is the front of one scope: its listeners and route configurations, and what each host brings to them.
type Front struct {
	*scope
	listeners     *listeners
	routes        *routes.Table
	contributions layer.Table[contribution] // by host
	reading       map[string]bool           // hosts whose routes of connections read labels of the proxy
}

// contribution lists the listeners and virtual hosts of one host. Scopes share it: it is replaced, never
// changed.
type contribution struct {
	traffic []traffic
	reads   intern.List[string] // keys of labels of the proxy that the traffic reads
	routes  []routeKey          // in which it has a virtual host
}

func (c *contribution) equal(o *contribution) bool {
	return slices.Equal(c.traffic, o.traffic) && c.reads == o.reads && slices.Equal(c.routes, o.routes)
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	strs            intern.Table[string]
	chains          intern.Table[listener.Chain]
	targets         intern.Table[listener.Target]
	virtualServices intern.Table[*model.VirtualService]
)

// side is the EnvoyFilter context of outbound sidecars.
const side = networkingv1.EnvoyFilter_SIDECAR_OUTBOUND

func importsOf(listeners []*egress) (out []*host.Imports) {
	for _, e := range listeners {
		out = append(out, e.Imports)
	}
	return out
}

// New makes the front of a scope, and its host table, without hosts: what stays for as long as the scope does is
// planned. A Sidecar of nil means that none applies.
func New(in *input.Input, key view.Scope, sidecar *model.Sidecar, patches input.PatchSet, to *layer.Layer) (*Front, *host.Table) {
	s := &scope{in: in, layer: to, key: key, sidecar: sidecar, patches: patches, problems: input.Problems{}, own: &editor{},
		ports: map[servedBy][]uint32{}}
	var found []input.Problem
	s.egress, found = egressOf(sidecar, key)
	s.hosts = host.New(in, key, host.Envoy(side, virtualservice.Mesh), importsOf(s.egress), patches, to)
	f := &Front{scope: s, listeners: newListeners(s), routes: routes.New(s.routesScope(), s), reading: map[string]bool{}}
	f.listeners.brings = &f.contributions
	s.outbound().PlanAdded(func(name string) { f.routes.Use(envoy.ConfigNamed(name), 1) }, &found)
	s.outbound().PlanStatic(&found)
	out := s.decide(view.Inputs{})
	s.reports.spec = out.Spec
	s.problems.Set("telemetry", out.Problems)
	if f.listeners.planVirtual(&found) {
		f.routes.Use(unknownHosts.config(), 1)
	}
	f.listeners.bringProxy()
	s.problems.Set("scope", found)
	return f, s.hosts
}

// Read implements front.Front.
func (f *Front) Read(in *input.Input) { f.in, f.routes.In = in, in }

// Problems implements front.Front.
func (f *Front) Problems() input.Problems {
	all := f.problems.Clone()
	var varied []input.Problem
	for _, reports := range f.reports.varied {
		varied = append(varied, reports.Problems...)
	}
	all.Set("telemetry of variations", varied)
	return all
}

// Fork implements front.Front.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	s := f.scope.fork(key, to)
	next := &Front{scope: s, listeners: f.listeners.fork(s), routes: f.routes.Fork(s.routesScope(), s),
		contributions: f.contributions.Fork(), reading: maps.Clone(f.reading)}
	next.listeners.brings = &next.contributions
	return next, s.hosts
}

// Host implements front.Front.
func (f *Front) Host(name string, what input.Types, rest func()) (uses bool) {
	h, now := f.hosts.Get(name), f.contributionOf(name)
	if f.reports.hosts[name] && what.Has(input.CDS) {
		f.Report()
	}
	if what.Has(input.LDS) {
		f.planTraffic(h, &now, rest)
		f.listeners.touch(now.traffic)
	}
	if what.Has(input.RDS) {
		now.routes = f.planEntries(h, now.routes, rest)
	}
	f.contribute(name, now)
	return len(now.traffic)+len(now.routes) > 0
}

// Endpoints implements front.Front: a headless service has a listener at each address of its endpoints.
func (f *Front) Endpoints(h *host.Host, rest func()) {
	if h.Service.Spec.GetHeadless() {
		now := f.contributionOf(h.Name)
		f.planTraffic(h, &now, rest)
		f.contribute(h.Name, now)
	}
}

func (f *Front) contributionOf(name string) contribution {
	if c := f.contributions.Get(name); c != nil {
		return *c
	}
	return contribution{}
}

// sharedContribution is the key of layer.Share.
type sharedContribution string

// contribute keeps what a host contributes now. What is as it was stays the value that it was.
func (f *Front) contribute(name string, now contribution) {
	was := f.contributions.Get(name)
	delete(f.reading, name)
	if now.reads.Len() > 0 {
		f.reading[name] = true
	}
	switch {
	case len(now.traffic)+len(now.routes) == 0:
		f.contributions.Put(name, nil)
	case was == nil || !was.equal(&now):
		f.contributions.Put(name, layer.Share(f.in.Sharing, sharedContribution(name), &now, (*contribution).equal))
	}
}

// planTraffic brings a host's traffic to listeners in place of what it brought before.
func (f *Front) planTraffic(h *host.Host, c *contribution, rest func()) {
	now, reads, found := f.trafficOf(h, f.hosts.Plain())
	f.problems.Set("host "+h.Name, found)
	c.reads = view.Reads{}.With(reads).Labels
	if slices.Equal(c.traffic, now) {
		return
	}
	f.listeners.exchange(h.Name, c.traffic, now, rest)
	c.traffic = now
}

// between calls rest after every sixteenth listener or route configuration that a host takes part in. The first host of
// a step that changes a listener or a route configuration copies it.
func between(i int, rest func()) {
	if i%16 == 15 {
		rest()
	}
}

// planEntries enters a host into its route configurations, removes it from the others among old, and returns the
// former.
func (f *Front) planEntries(h *host.Host, old []routeKey, rest func()) []routeKey {
	hosts := f.virtualHostsOf(h)
	for i, key := range old {
		if _, still := hosts[key]; !still {
			f.routes.Leave(key.config(), key.id(h.Name))
		}
		between(i, rest)
	}
	now := slices.SortedFunc(maps.Keys(hosts), routeKey.compare)
	for i, key := range now {
		f.routes.Enter(key.config(), hosts[key])
		between(i, rest)
	}
	return now
}

// Finish implements front.Front.
func (f *Front) Finish(rest func()) {
	if f.reports.stale {
		f.report()
	}
	for name := range f.listeners.changed {
		if l := f.listeners.table.Get(name); l != nil {
			if was := f.listeners.plan(l); was.Res != l.Res {
				f.useRoutes(&was, -1)
				f.useRoutes(l, 1)
			}
			rest()
		}
	}
	f.routes.Finish(rest)
}

// useRoutes adds `by` to the users of the route configurations that a listener asks for, by its Spec or by an
// EnvoyFilter.
func (f *Front) useRoutes(l *outbound, by int) {
	if l.Res == nil {
		return
	}
	for _, ref := range l.Res.Needs {
		if ref.Type == xds.Route {
			f.routes.Use(envoy.ConfigNamed(ref.Name), by)
		}
	}
}

// Done implements front.Front.
func (f *Front) Done() {
	f.reports.again = false
	clear(f.ports)
	f.routes.Done()
	if len(f.listeners.changed)+len(f.listeners.touched) > 0 {
		f.listeners.changed, f.listeners.touched = map[string]bool{}, map[string]bool{}
	}
}

// stepped says whether the step touched a listener or a route configuration.
func (f *Front) stepped() bool {
	return f.routes.Changed() || len(f.listeners.changed)+len(f.listeners.touched) > 0
}
