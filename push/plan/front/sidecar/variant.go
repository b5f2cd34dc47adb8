package sidecar

import (
	"slices"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Variant implements front.Front. For proxies with certain inputs there are other route configurations where a rule reads them, and
// other route configurations and listeners where a host has other rules, or is a destination of what they route.
func (f *Front) Variant(v *host.Variation, all bool, rest func()) {
	ruled := v.Reached()
	if len(ruled) > 0 {
		all = all || f.stepped()
	}
	if !all {
		for _, key := range f.routes.changedKeys() {
			f.routes.planVariant(key, v, nil)
			rest()
		}
		f.listeners.planExtended(v, f.listeners.changed, rest)
		return
	}
	names := map[string]bool{}
	for _, rc := range f.routes.table {
		names[rc.name] = true
		f.routes.planVariant(rc.routeKey, v, ruled)
		rest()
	}
	v.Layer.Retain(xds.Route, names)
	f.listeners.planVariant(v, f.broughtFor(v, ruled), rest)
}

// broughtFor is what hosts bring to listeners for a variation, by listener, where that differs from what they bring for all.
func (f *Front) broughtFor(v *host.Variation, ruled map[string]bool) map[string][]brought {
	out := map[string][]brought{}
	for name := range ruled {
		c := f.contributions.Get(name)
		if c == nil || len(c.traffic) == 0 {
			continue
		}
		now, _ := f.trafficOf(v.Get(name), v)
		if slices.Equal(now, c.traffic) {
			continue
		}
		for _, t := range now {
			out[t.listener] = append(out[t.listener], brought{name, t})
		}
	}
	return out
}

// with is a copy of a listener to which some hosts bring something else. Rules decide about clusters and policies alone, so that no
// host brings plain HTTP, or comes or goes, by them.
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
	decide := func(name string, en *entry) {
		instead[name] = nil
		if spec, ok := rs.specOf(rc, en, rs.hosts.Of(v), &found); ok {
			instead[name] = rs.fragment(spec, rs.blame(en), &found)
		}
	}
	if rc.differs(v.Inputs) {
		for name, en := range rc.reading {
			decide(name, en)
		}
	}
	for name := range ruled {
		if en := rc.entries.Get(name); en != nil {
			decide(name, en)
		}
	}
	if u, ok := rs.joined(rc, instead, &found); ok && u.Res != rc.Res {
		v.Layer.Add(u)
	} else {
		v.Layer.Remove(xds.Route, rc.name)
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
		if slices.ContainsFunc(c.hosts, func(host string) bool { _, other := instead[host]; return other }) {
			frag = join(rc.parts(c, instead))
		}
		if frag != nil {
			hosts = append(hosts, frag)
		}
	}
	return rs.in.Make(rs.spec(rc, append(hosts, rc.tailFragments()...)), model.MeshKey, found)
}

// planVariant plans the listeners to which hosts bring something else for a variation, and all of them where its proxies have extensions.
func (ls *listeners) planVariant(v *host.Variation, brings map[string][]brought, rest func()) {
	names := map[string]bool{}
	for name, traffic := range brings {
		if l := ls.table.Get(name); l != nil && ls.planFor(v, l, l.with(traffic)) {
			names[name] = true
		}
	}
	if v.Inputs.Extensions.Len() > 0 {
		for name, l := range ls.table.All() {
			if _, done := brings[name]; !done && ls.planFor(v, l, l) {
				names[name] = true
			}
			rest()
		}
	}
	v.Layer.Retain(xds.Listener, names)
}

// planExtended plans those of the listeners again that have other filters for a variation, because its proxies have extensions. No host brings
// something else for it.
func (ls *listeners) planExtended(v *host.Variation, changed map[string]bool, rest func()) {
	if v.Inputs.Extensions.Len() == 0 {
		return
	}
	for name := range changed {
		if l := ls.table.Get(name); l == nil || !ls.planFor(v, l, l) {
			v.Layer.Remove(xds.Listener, name)
		}
		rest()
	}
}

// planFor plans a listener for a variation, as what is brought to it there has it. False: it is the scope's.
func (ls *listeners) planFor(v *host.Variation, base, as *outbound) bool {
	var found []input.Problem // the same as the scope's
	spec, _, ok := ls.spec(as, &found)
	if !ok {
		return false
	}
	spec.Extensions = v.Inputs.Extensions
	u, ok := ls.in.Make(spec, ls.in.Mesh.Key, &found)
	if !ok || u.Res == base.Res || ls.layer.Claimed(u.Res) {
		return false
	}
	v.Layer.Add(u)
	return true
}
