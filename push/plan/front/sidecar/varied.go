package sidecar

import (
	"slices"

	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/xds"
)

// variedListeners are the listeners of a variation, while they are planned. They are others than the scope's where hosts bring something else to
// them, where they report something else, have filters of extensions, or are for a proxy that says something of its headers and connections.
type variedListeners struct {
	*Front
	of      *host.Variation
	reports telemetry.Spec
	all     bool                 // they report, have or say something that all listeners do
	hosts   map[string]bool      // that may bring something else
	traffic map[string][]traffic // what some of these bring, as far as it was asked for
}

// variedListeners are those of a variation, by whose rules some hosts are others, beside those whose routes of connections read its inputs.
func (f *Front) variedListeners(v *host.Variation, hosts map[string]bool) *variedListeners {
	ls := &variedListeners{Front: f, of: v, reports: f.reportsOf(v.Inputs), hosts: hosts, traffic: map[string][]traffic{}}
	ls.all = ls.reports != f.reports.spec || v.Inputs.Extensions.Len() > 0 || v.Inputs.Listeners.Stated
	for name := range f.reading {
		if labelsRead(v.Inputs, f.contributions.Get(name).reads).Len() > 0 {
			ls.hosts[name] = true
		}
	}
	return ls
}

// plan plans those that the step may have changed, or each of them.
func (ls *variedListeners) plan(each bool, rest func()) {
	planned := map[string]bool{}
	plan := func(name string) {
		if _, again := planned[name]; !again {
			planned[name] = ls.planOne(name)
			rest()
		}
	}
	for name := range ls.listeners.changed {
		plan(name)
	}
	for name := range ls.listeners.touched {
		plan(name)
	}
	if !each {
		return
	}
	for name := range ls.hosts {
		for _, t := range ls.contributionOf(name).traffic {
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

// planOne plans one listener. False: it is the scope's, or there is none.
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

// varied is a listener as it is for the variation; false: there is none, or nothing says that it is another one.
func (ls *variedListeners) varied(l *outbound) (layer.Unit, bool) {
	var found []input.Problem // the same as the scope's
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

// with is a listener to which hosts bring what they bring for the variation, and whether that is something else. Inputs decide about chains
// alone, so that no host brings plain HTTP, or comes or goes, by them.
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

// trafficOf is what a host brings to listeners for the variation.
func (ls *variedListeners) trafficOf(name string) []traffic {
	known, ok := ls.traffic[name]
	if !ok {
		known, _, _ = ls.scope.trafficOf(ls.of.Get(name), ls.Front.hosts.Of(ls.of))
		ls.traffic[name] = known
	}
	return known
}

// planVirtual is planOne for the listener that redirected connections arrive at.
func (ls *variedListeners) planVirtual() bool {
	spec, ok := ls.listeners.virtual(ls.reports)
	spec.Proxy = ls.of.Inputs.Listeners.Or(spec.Proxy)
	if spec.ByName {
		spec.Extensions = ls.of.Inputs.Extensions
	}
	if !ok || spec == ls.layer.Spec(xds.Ref{Type: xds.Listener, Name: xds.VirtualOutbound}) {
		return false
	}
	var found []input.Problem // the same as the scope's
	u, ok := ls.in.Make(spec, ls.in.Mesh.Key, &found)
	if !ok || ls.layer.Reserved(u.Res) {
		return false
	}
	ls.of.Layer.Add(u)
	return true
}
