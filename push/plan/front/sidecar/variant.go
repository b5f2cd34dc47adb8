package sidecar

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Variant implements front.Front: for proxies with certain inputs there are other route configurations where a rule reads them.
func (f *Front) Variant(inputs view.Inputs, all bool, to *layer.Layer, rest func()) {
	if all {
		for _, rc := range f.routes {
			f.planVariant(rc.routeKey, inputs, to)
		}
		return
	}
	for _, key := range f.changed() {
		f.planVariant(key, inputs, to)
		rest()
	}
}

// planVariant plans one route configuration for proxies with certain inputs.
func (f *Front) planVariant(key routeKey, inputs view.Inputs, to *layer.Layer) {
	rc := f.routes[key]
	if rc == nil || rc.users <= 0 || !rc.differs(inputs) {
		to.Remove(xds.Route, key.name())
		return
	}
	var found []input.Problem
	instead := map[string]*xds.Fragment{}
	for host, en := range rc.reading {
		instead[host] = nil
		if spec, ok := f.specOf(rc, en, inputs, &found); ok {
			instead[host] = f.fragment(spec, f.blame(en), &found)
		}
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
	hosts = append(hosts, rc.tailFragments()...)
	if u, ok := f.in.Make(f.routeSpec(rc, hosts), model.MeshKey, &found); ok {
		to.Add(u)
	}
}

// differs says whether a rule of the route configuration reads one of the inputs.
func (rc *routes) differs(inputs view.Inputs) bool {
	for _, en := range rc.reading {
		if labelsRead(inputs, en.reads).Len() > 0 {
			return true
		}
	}
	return false
}

// labelsRead are the labels whose keys are read.
func labelsRead(inputs view.Inputs, keys intern.List[string]) intern.List[string] {
	var out []string
	for _, label := range inputs.Labels.All() {
		if key, _, _ := strings.Cut(label, "="); slices.Contains(keys.All(), key) {
			out = append(out, label)
		}
	}
	return strs.List(out...)
}
