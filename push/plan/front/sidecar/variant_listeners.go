package sidecar

import (
	"slices"

	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
)

// variedListeners plans the listeners that differ from the scope's listeners for the proxies of a variation (proxies
// with certain inputs, such as labels). A listener may differ for four reasons: other traffic of its hosts, other
// telemetry, filters of extensions, and settings of the proxy's own ProxyConfig.
type variedListeners struct {
	*Front
	of      *host.Variation
	reports telemetry.Spec
	all     bool                 // all listeners may differ, for one of the last three reasons
	hosts   map[string]bool      // hosts whose traffic may differ
	traffic map[string][]traffic // cache of trafficOf
}

// variedListeners returns the variedListeners of a variation. The argument hosts has the hosts that the variation
// reroutes. variedListeners adds to it the hosts whose tcp or tls rules read the variation's inputs.
func (f *Front) variedListeners(v *host.Variation, hosts map[string]bool) *variedListeners {
	ls := &variedListeners{Front: f, of: v, reports: f.reportsOf(v.Inputs), hosts: hosts, traffic: map[string][]traffic{}}
	ls.all = ls.reports != f.reports.spec || v.Inputs.Extensions.Len() > 0 || v.Inputs.Listeners.Stated
	for name := range f.reading {
		if labelsRead(v.Inputs, f.entries.Get(name).reads).Len() > 0 {
			ls.hosts[name] = true
		}
	}
	return ls
}

// plan plans the listeners that the Front's present step of planning may have changed. If full is true, it also plans
// all other listeners that may differ.
func (ls *variedListeners) plan(full bool, yield func()) {
	planned := map[string]bool{}
	plan := func(name string) {
		if _, again := planned[name]; !again {
			planned[name] = ls.planOne(name)
			yield()
		}
	}
	for name := range ls.listeners.changed {
		plan(name)
	}
	for name := range ls.listeners.touched {
		plan(name)
	}
	if !full {
		return
	}
	for name := range ls.hosts {
		for _, t := range ls.entriesOf(name).traffic {
			plan(t.listener)
		}
	}
	if ls.all {
		for name := range ls.listeners.table.All() {
			plan(name)
		}
	}
	planned[xds.VirtualOutbound] = ls.planVirtual()
	ls.of.Layer.Retain(xds.Listener, planned)
}

// planOne plans one listener. It reports whether the variation has its own version of the listener.
func (ls *variedListeners) planOne(name string) bool {
	l := ls.listeners.table.Get(name)
	if l != nil {
		if u, ok := ls.varied(l); ok && u.Res != l.Res && !ls.layer.Reserved(u.Res) {
			ls.of.Layer.Add(u)
			return true
		}
	}
	ls.of.Layer.Remove(xds.Listener, name)
	return false
}

// varied builds the variation's version of a listener. The result is false if the listener cannot differ from the
// scope's version, or if there is no such listener.
func (ls *variedListeners) varied(l *outbound) (layer.Unit, bool) {
	var found []input.Problem // dropped: the scope reports the same problems
	of, other := ls.with(l)
	if !other && !ls.all {
		return layer.Unit{}, false
	}
	spec, _, ok := ls.listeners.spec(of, &found)
	if !ok {
		return layer.Unit{}, false
	}
	spec = reporting(spec, ls.reports)
	spec.Extensions, spec.Proxy = ls.of.Inputs.Extensions, ls.of.Inputs.Listeners.Or(spec.Proxy)
	return ls.in.Make(spec, ls.in.Mesh.Key, &found)
}

// with returns a listener with the variation's traffic, and reports whether this traffic differs from that of l. In the
// variation, the listener has the same hosts and the same plain HTTP as in the scope. Only other traffic differs.
func (ls *variedListeners) with(l *outbound) (of *outbound, other bool) {
	of = l
	for i, b := range l.rest {
		if !ls.hosts[b.host] {
			continue
		}
		for _, t := range ls.trafficOf(b.host) {
			if t.listener != l.name || t.egress != b.egress || t.from != b.from || t == b.traffic {
				continue
			}
			if of == l {
				of = &outbound{Unit: l.Unit, name: l.name, http: l.http, rest: slices.Clone(l.rest)}
			}
			of.rest[i].traffic = t
		}
	}
	return of, of != l
}

// trafficOf returns the traffic of a host in the variation, from the cache if possible.
func (ls *variedListeners) trafficOf(name string) []traffic {
	known, ok := ls.traffic[name]
	if !ok {
		known, _, _ = ls.scope.trafficOf(ls.of.Get(name), ls.Front.hosts.Of(ls.of))
		ls.traffic[name] = known
	}
	return known
}

// planVirtual plans the listener that receives redirected connections. It reports whether the listener differs from the
// scope's.
func (ls *variedListeners) planVirtual() bool {
	spec, ok := ls.listeners.virtual(ls.reports)
	spec.Proxy = ls.of.Inputs.Listeners.Or(spec.Proxy)
	if spec.ByName {
		spec.Extensions = ls.of.Inputs.Extensions
	}
	if !ok || spec == ls.layer.Spec(xds.Ref{Type: xds.Listener, Name: xds.VirtualOutbound}) {
		return false
	}
	var found []input.Problem // dropped: the scope reports the same problems
	u, ok := ls.in.Make(spec, ls.in.Mesh.Key, &found)
	if !ok || ls.layer.Reserved(u.Res) {
		return false
	}
	ls.of.Layer.Add(u)
	return true
}
