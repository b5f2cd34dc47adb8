package sidecar

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Variant implements front.Front. For proxies with certain inputs there are other route configurations where a rule reads them, and
// other route configurations and listeners where a host has other rules, or is a destination of what they route, and other listeners where
// these report something else, have filters of extensions, or are for a proxy that says something of its headers and connections.
func (f *Front) Variant(v *host.Variation, all bool, rest func()) {
	ruled := v.Reached()
	reports, reading := f.reportsOf(v.Inputs), f.readingOf(v.Inputs)
	if len(ruled)+len(reading) > 0 {
		all = all || f.stepped()
	}
	if all {
		names := map[string]bool{}
		for _, rc := range f.routes.table {
			names[rc.name] = true
			f.routes.planVariant(rc.routeKey, v, ruled)
			rest()
		}
		v.Layer.Retain(xds.Route, names)
	} else {
		for _, key := range f.routes.changedKeys() {
			f.routes.planVariant(key, v, nil)
			rest()
		}
	}
	switch {
	case all || f.reports.again:
		maps.Copy(reading, ruled)
		f.listeners.planVariants(v, f.broughtFor(v, reading), reports, rest)
	case reports != f.reports.spec || ofListeners(v.Inputs):
		for name := range f.listeners.changed {
			f.listeners.planVariant(v, name, nil, reports)
			rest()
		}
	}
}

// readingOf are the hosts whose routes of connections read one of the inputs.
func (f *Front) readingOf(inputs view.Inputs) map[string]bool {
	out := map[string]bool{}
	for name := range f.reading {
		if labelsRead(inputs, f.contributions.Get(name).reads).Len() > 0 {
			out[name] = true
		}
	}
	return out
}

// broughtFor is what hosts bring to listeners for a variation, by listener, where that differs from what they bring for all.
func (f *Front) broughtFor(v *host.Variation, hosts map[string]bool) map[string][]brought {
	out := map[string][]brought{}
	for name := range hosts {
		c := f.contributions.Get(name)
		if c == nil || len(c.traffic) == 0 {
			continue
		}
		now, _, _ := f.trafficOf(v.Get(name), f.hosts.Of(v))
		if slices.Equal(now, c.traffic) {
			continue
		}
		for _, t := range now {
			out[t.listener] = append(out[t.listener], brought{name, t})
		}
	}
	return out
}

// with is a copy of a listener to which some hosts bring something else. Inputs decide about chains alone, so that no host brings plain
// HTTP, or comes or goes, by them.
func (l *outbound) with(traffic []brought) *outbound {
	out := &outbound{Unit: l.Unit, name: l.name, http: l.http, rest: slices.Clone(l.rest)}
	for i, b := range out.rest {
		for _, t := range traffic {
			if t.host == b.host && t.egress == b.egress && t.from == b.from {
				out.rest[i] = t
			}
		}
	}
	return out
}

// differs says whether a rule of the route configuration reads one of the inputs.
func (rc *routeConfig) differs(inputs view.Inputs) bool {
	for _, en := range rc.reading {
		if labelsRead(inputs, en.reads).Len() > 0 {
			return true
		}
	}
	return false
}

// labelsRead are the labels whose keys are read.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	return view.Reads{Labels: keys}.Of(inputs).Labels
}

// planVariant plans one route configuration for a variation.
func (rs *routeTable) planVariant(key routeKey, v *host.Variation, ruled map[string]bool) {
	rc := rs.table[key]
	if rc == nil || rc.users <= 0 {
		v.Layer.Remove(xds.Route, key.name())
		return
	}
	var found []input.Problem
	instead := map[string]*xds.Fragment{}
	decide := func(en *entry) {
		instead[en.id] = nil
		if spec, ok := rs.specOf(rc, en, rs.hosts.Of(v), &found); ok {
			instead[en.id] = rs.fragment(spec, rs.blame(en), &found)
		}
	}
	if rc.differs(v.Inputs) {
		for _, en := range rc.reading {
			decide(en)
		}
	}
	for en := range rc.entriesOf(ruled) {
		decide(en)
	}
	if u, ok := rs.joined(rc, instead, &found); ok && u.Res != rc.Res {
		v.Layer.Add(u)
	} else {
		v.Layer.Remove(xds.Route, rc.name)
	}
}

// entriesOf are the entries of some hosts.
func (rc *routeConfig) entriesOf(hosts map[string]bool) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if rc.kind == ofProxy && len(hosts) > 0 { // a host has several
			for _, en := range rc.entries.All() {
				if hosts[en.host] && !yield(en) {
					return
				}
			}
			return
		}
		for host := range hosts {
			if en := rc.entries.Get(host); en != nil && !yield(en) {
				return
			}
		}
	}
}

// joined is a route configuration with other virtual hosts for some of its hosts; false: with none.
func (rs *routeTable) joined(rc *routeConfig, instead map[string]*xds.Fragment, found *[]input.Problem) (layer.Unit, bool) {
	if len(instead) == 0 {
		return layer.Unit{}, false
	}
	var hosts []*xds.Fragment
	for i := range rc.runs {
		c := &rc.runs[i]
		frag := c.frag
		if slices.ContainsFunc(c.entries, func(id string) bool { _, other := instead[id]; return other }) {
			frag = join(rc.parts(c, instead))
		}
		if frag != nil {
			hosts = append(hosts, frag)
		}
	}
	return rs.in.Make(rs.spec(rc, append(hosts, rc.tailFragments()...)), model.MeshKey, found)
}

// ofListeners says whether one of the inputs that all listeners read, and nothing else, is there.
func ofListeners(inputs view.Inputs) bool {
	return inputs.Extensions.Len() > 0 || inputs.Listeners.Stated
}

// planVariants plans all listeners that are others for a variation: hosts bring something else to them, they report something else, have filters
// of extensions, or the proxy says something of its headers and connections.
func (ls *listeners) planVariants(v *host.Variation, brings map[string][]brought, reports telemetry.Spec, rest func()) {
	names := map[string]bool{}
	for name, traffic := range brings {
		names[name] = ls.planVariant(v, name, traffic, reports)
	}
	if reports != ls.reports.spec || ofListeners(v.Inputs) {
		for name := range ls.table.All() {
			if _, planned := names[name]; !planned {
				names[name] = ls.planVariant(v, name, nil, reports)
			}
			rest()
		}
		names[xds.VirtualOutbound] = ls.planVirtualVariant(v, reports)
	}
	v.Layer.Retain(xds.Listener, names)
}

// planVariant plans one of them, to which some hosts bring this instead. False: it is as for all.
func (ls *listeners) planVariant(v *host.Variation, name string, traffic []brought, reports telemetry.Spec) bool {
	var found []input.Problem // the same as the scope's
	if l := ls.table.Get(name); l != nil {
		of := l
		if len(traffic) > 0 {
			of = l.with(traffic)
		}
		if spec, _, ok := ls.spec(of, &found); ok {
			spec = reporting(spec, reports)
			spec.Extensions, spec.Proxy = v.Inputs.Extensions, v.Inputs.Listeners.Or(spec.Proxy)
			if u, ok := ls.in.Make(spec, ls.in.Mesh.Key, &found); ok && u.Res != l.Res && !ls.layer.Claimed(u.Res) {
				v.Layer.Add(u)
				return true
			}
		}
	}
	v.Layer.Remove(xds.Listener, name)
	return false
}

// planVirtualVariant is planVariant for the listener that redirected connections arrive at.
func (ls *listeners) planVirtualVariant(v *host.Variation, reports telemetry.Spec) bool {
	spec, ok := ls.virtual(reports)
	spec.Proxy = v.Inputs.Listeners.Or(spec.Proxy)
	if !ok || spec == ls.layer.Spec(xds.Ref{Type: xds.Listener, Name: xds.VirtualOutbound}) {
		return false
	}
	var found []input.Problem // the same as the scope's
	u, ok := ls.in.Make(spec, ls.in.Mesh.Key, &found)
	if !ok || ls.layer.Claimed(u.Res) {
		return false
	}
	v.Layer.Add(u)
	return true
}
