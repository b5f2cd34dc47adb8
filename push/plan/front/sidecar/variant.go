package sidecar

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Variant implements front.Front. For proxies with certain inputs there are other route configurations where a rule reads them, or where a
// host has, or is routed to one that has, other rules, and other listeners for the same reasons (variedListeners has the others). A step may
// change that only at hosts of the step: where the rules of a destination are others, so are those that are routed to it (plan's table affects).
func (f *Front) Variant(v *host.Variation, first bool, rest func()) {
	if !first && !f.reports.again && !f.stepped() {
		return
	}
	reached := v.Reached()
	entries := f.variedEntries(reached)
	plan := func(key routeKey) {
		f.routes.planVariant(key, v, entries[key])
		rest()
	}
	if first {
		for key := range f.routes.table {
			plan(key)
		}
	}
	for key := range f.routes.changed {
		plan(key)
	}
	f.variedListeners(v, reached).plan(first || f.reports.again, rest)
}

// variedEntries are the entries of some hosts, by route configuration.
func (f *Front) variedEntries(hosts map[string]bool) map[routeKey][]*entry {
	out := map[routeKey][]*entry{}
	for name := range hosts {
		for _, key := range f.contributionOf(name).routes {
			rc := f.routes.table[key.table()]
			if en := rc.entries.Get(key.entry(name)); en != nil {
				out[rc.routeKey] = append(out[rc.routeKey], en)
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

// planVariant plans one route configuration for a variation, by whose rules some entries are others, beside those that read its inputs.
func (rs *routeTable) planVariant(key routeKey, v *host.Variation, others []*entry) {
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
	for _, en := range others {
		decide(en)
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
	other := map[int]bool{}
	for id := range instead {
		other[rc.runs.find(id)] = true
	}
	hosts := make([]*xds.Fragment, 0, len(rc.runs)+len(rc.tail))
	for i := range rc.runs {
		c := &rc.runs[i]
		frag := c.frag
		if other[i] {
			frag = join(rc.parts(c, instead))
		}
		if frag != nil {
			hosts = append(hosts, frag)
		}
	}
	return rs.in.Make(rs.spec(rc, append(hosts, rc.tailFragments()...)), model.MeshKey, found)
}
