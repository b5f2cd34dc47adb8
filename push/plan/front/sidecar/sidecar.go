// Package sidecar plans the outbound listeners of sidecars, and the route configurations that these listeners request.
// It is a front, a part of the plan that is specific to one kind of proxy. Its input is the host table of a scope, a
// group of proxies with the same outbound configuration. The egress listeners of the scope's Sidecar decide which hosts
// the listeners include. Without egress listeners, all hosts are included.
//
// Owns: the listeners of each scope.
// Reads: plan/host.
// Never: chooses the services, rules or clusters of a host.
//
// Each host adds traffic to listeners, and virtual hosts to route configurations. A listener is planned from the
// traffic of all its hosts. push/plan/routes plans the route configurations.
//
// A change is planned in one step. Proxies of a scope may differ in inputs, such as labels, that some rules read. For
// each combination of inputs a variation contains the resources that differ from those of proxies without inputs.
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

// Front implements front.Front for one scope of sidecars. It contains the listeners and route configurations, and for
// each host its entries in both. Only the planner's goroutine may use it. Methods call the function yield between two
// pieces of work.
type Front struct {
	*scope
	listeners *listeners
	routes    *routes.Table
	entries   layer.Table[hostEntries] // by host
	reading   map[string]bool          // hosts whose tcp or tls rules read labels of the proxy
}

// hostEntries lists the traffic and the virtual hosts of one host. Scopes share values and never change them.
type hostEntries struct {
	traffic []traffic
	reads   intern.List[string] // keys of the proxy labels that the traffic depends on
	routes  []routeKey          // the route configurations in which the host has a virtual host
}

// equal reports whether two values have equal traffic and virtual hosts.
func (c *hostEntries) equal(o *hostEntries) bool {
	return slices.Equal(c.traffic, o.traffic) && c.reads == o.reads && slices.Equal(c.routes, o.routes)
}

// Interned lists of Specs. The tables are weak, so a list lives as long as a Spec uses it.
var (
	strs            intern.Table[string]
	chains          intern.Table[listener.Chain]
	targets         intern.Table[listener.Target]
	virtualServices intern.Table[*model.VirtualService]
)

// side is the EnvoyFilter context of outbound sidecars.
const side = networkingv1.EnvoyFilter_SIDECAR_OUTBOUND

// importsOf returns the Imports of egress listeners.
func importsOf(listeners []*egress) (out []*host.Imports) {
	for _, e := range listeners {
		out = append(out, e.Imports)
	}
	return out
}

// New returns the front and the host table of the scope with the given key, both without hosts. It plans the resources
// that do not depend on hosts, and stores them in the layer target. The argument sidecar is nil if no Sidecar applies.
// The method Problems returns the problems that New found.
func New(in *input.Input, key view.Scope, sidecar *model.Sidecar, patches input.PatchSet, target *layer.Layer) (*Front, *host.Table) {
	s := &scope{in: in, layer: target, key: key, sidecar: sidecar, patches: patches, problems: input.Problems{}, own: &editor{},
		ports: map[servedBy][]uint32{}}
	var found []input.Problem
	s.egress, found = egressOf(sidecar, key)
	s.hosts = host.New(in, key, host.Envoy(side, virtualservice.Mesh), importsOf(s.egress), patches, target)
	f := &Front{scope: s, listeners: newListeners(s), routes: routes.New(s.routesScope(), s), reading: map[string]bool{}}
	f.listeners.entries = &f.entries
	s.outbound().PlanAdded(func(name string) { f.routes.Use(envoy.ConfigNamed(name), 1) }, &found)
	s.outbound().PlanStatic(&found)
	out := s.decide(view.Inputs{})
	s.reports.spec = out.Spec
	s.problems.Set("telemetry", out.Problems)
	if f.listeners.planVirtual(&found) {
		f.routes.Use(unknownHosts.config(), 1)
	}
	f.listeners.addProxyListener()
	s.problems.Set("scope", found)
	return f, s.hosts
}

// Read implements front.Front. It replaces the input that the front plans with.
func (f *Front) Read(in *input.Input) { f.in, f.routes.In = in, in }

// Touched implements front.Front. The result is always false. The front as a whole depends only on records that the key
// of its scope names, and the planner itself checks these records.
func (f *Front) Touched(_, _ map[model.Key]bool, _, _ map[string]bool) bool { return false }

// Problems implements front.Front. It returns the problems that the last plan found. The caller owns the map.
func (f *Front) Problems() input.Problems {
	all := f.problems.Clone()
	var varied []input.Problem
	for _, reports := range f.reports.varied {
		varied = append(varied, reports.Problems...)
	}
	all.Set("telemetry of variations", varied)
	return all
}

// Fork implements front.Front. It returns a copy of the front and of its host table, with another scope key and layer.
// Changes of one front do not affect the other. Fork must not be called within a step.
func (f *Front) Fork(key view.Scope, to *layer.Layer) (front.Front, *host.Table) {
	s := f.scope.fork(key, to)
	next := &Front{scope: s, listeners: f.listeners.fork(s), routes: f.routes.Fork(s.routesScope(), s),
		entries: f.entries.Fork(), reading: maps.Clone(f.reading)}
	next.listeners.entries = &next.entries
	return next, s.hosts
}

// Host implements front.Front. It plans the traffic of a host if types has input.LDS, and its virtual hosts if types
// has input.RDS. If types has input.CDS and telemetry depends on the host, Finish decides telemetry again. Host reports
// whether the host has traffic or virtual hosts afterwards. The host table must have the host.
func (f *Front) Host(name string, types input.Types, yield func()) (uses bool) {
	h, now := f.hosts.Get(name), f.entriesOf(name)
	if f.reports.hosts[name] && types.Has(input.CDS) {
		f.TelemetryChanged()
	}
	if types.Has(input.LDS) {
		f.planTraffic(h, &now, yield)
		f.listeners.touch(now.traffic)
	}
	if types.Has(input.RDS) {
		now.routes = f.planEntries(h, now.routes, yield)
	}
	f.putEntries(name, now)
	return len(now.traffic)+len(now.routes) > 0
}

// Endpoints implements front.Front. It plans the traffic of a host again after a change of its endpoints alone. It does
// nothing for a service that is not headless, because only listeners of headless services depend on endpoints. h must
// have a service.
func (f *Front) Endpoints(h *host.Host, yield func()) {
	if h.Service.Spec.GetHeadless() {
		now := f.entriesOf(h.Name)
		f.planTraffic(h, &now, yield)
		f.putEntries(h.Name, now)
	}
}

// entriesOf returns the stored entries of a host, or the zero hostEntries.
func (f *Front) entriesOf(name string) hostEntries {
	if c := f.entries.Get(name); c != nil {
		return *c
	}
	return hostEntries{}
}

// sharedHostEntries is the key of a host's entries for layer.Share.
type sharedHostEntries string

// putEntries stores the entries of a host, unless they equal the stored value.
func (f *Front) putEntries(name string, now hostEntries) {
	was := f.entries.Get(name)
	delete(f.reading, name)
	if now.reads.Len() > 0 {
		f.reading[name] = true
	}
	switch {
	case len(now.traffic)+len(now.routes) == 0:
		f.entries.Put(name, nil)
	case was == nil || !was.equal(&now):
		f.entries.Put(name, layer.Share(f.in.Sharing, sharedHostEntries(name), &now, (*hostEntries).equal))
	}
}

// planTraffic replaces a host's traffic in its listeners.
func (f *Front) planTraffic(h *host.Host, c *hostEntries, yield func()) {
	now, reads, found := f.trafficOf(h, f.hosts.WithoutInputs())
	f.problems.Set("host "+h.Name, found)
	c.reads = view.Reads{}.With(reads).Labels
	if slices.Equal(c.traffic, now) {
		return
	}
	f.listeners.exchange(h.Name, c.traffic, now, yield)
	c.traffic = now
}

// pauseAt calls yield after every sixteenth listener or route configuration of a host. The first change of a listener
// or a route configuration in a step copies it, which takes time.
func pauseAt(i int, yield func()) {
	if i%16 == 15 {
		yield()
	}
}

// planEntries adds the virtual hosts of a host to its route configurations, and removes them from the other route
// configurations in old. It returns the route configurations that the host has now, in order.
func (f *Front) planEntries(h *host.Host, old []routeKey, yield func()) []routeKey {
	hosts := f.virtualHostsOf(h, yield)
	for i, key := range old {
		if _, still := hosts[key]; !still {
			f.routes.Leave(key.config(), key.id(h.Name), yield)
		}
		pauseAt(i, yield)
	}
	now := slices.SortedFunc(maps.Keys(hosts), routeKey.compare)
	for i, key := range now {
		f.routes.Enter(key.config(), hosts[key], yield)
		pauseAt(i, yield)
	}
	return now
}

// Finish implements front.Front. It plans the listeners and route configurations that the hosts of the step have
// changed, and the telemetry of listeners if TelemetryChanged was called.
func (f *Front) Finish(yield func()) {
	if f.reports.stale {
		f.report()
	}
	for name := range f.listeners.changed {
		if l := f.listeners.table.Get(name); l != nil {
			if was := f.listeners.plan(l); was.Res != l.Res {
				f.useRoutes(&was, -1)
				f.useRoutes(l, 1)
			}
			yield()
		}
	}
	f.routes.Finish(yield)
}

// useRoutes adds delta to the number of users of each route configuration that a listener requests. The Spec or an
// EnvoyFilter makes the listener request it.
func (f *Front) useRoutes(l *outbound, delta int) {
	if l.Res == nil {
		return
	}
	for _, ref := range l.Res.Needs {
		if ref.Type == xds.Route {
			f.routes.Use(envoy.ConfigNamed(ref.Name), delta)
		}
	}
}

// Done implements front.Front. It ends the step, and forgets the listeners and route configurations that the step has
// changed.
func (f *Front) Done() {
	f.reports.again = false
	clear(f.ports)
	f.routes.Done()
	if len(f.listeners.changed)+len(f.listeners.touched) > 0 {
		f.listeners.changed, f.listeners.touched = map[string]bool{}, map[string]bool{}
	}
}

// stepped reports whether the step touched a listener or a route configuration.
func (f *Front) stepped() bool {
	return f.routes.Changed() || len(f.listeners.changed)+len(f.listeners.touched) > 0
}
