package routes

import (
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Vary plans the route configurations that differ for the proxies of a variation (proxies with certain inputs, such as
// labels). It stores them in the variation's layer. It removes from that layer the route configurations that do not
// differ or that no listener requests. If first is true, Vary plans all route configurations. If not, it plans only the
// route configurations that the current step (the planning of one change) has touched.
//
// The parameter others has, by name of the route configuration, the ids of virtual hosts that may differ in the
// variation. It need not contain virtual hosts whose rules read labels (VirtualHost.Reads). Vary calls the function
// pause, which must not be nil, between two pieces of the work.
func (t *Table) Vary(v *host.Variation, others map[string][]string, first bool, pause func()) {
	plan := func(name string) {
		t.planVariation(name, v, others[name], pause)
		pause()
	}
	if first {
		for name := range t.configs {
			plan(name)
		}
	}
	for name := range t.changed {
		plan(name)
	}
}

// planVariation plans one route configuration for a variation.
func (t *Table) planVariation(name string, v *host.Variation, others []string, pause func()) {
	rc := t.configs[name]
	if rc == nil || rc.users <= 0 {
		v.Layer.Remove(xds.Route, name)
		return
	}
	var found []input.Problem // not used, because the scope reports the same problems
	instead := map[string]*xds.Fragment{}
	decide := func(vh *VirtualHost) {
		instead[vh.ID] = nil
		if spec, ok := t.specOf(rc, vh, t.Hosts.Of(v), &found, pause); ok {
			instead[vh.ID] = t.fragment(spec, t.names.Blame(vh), &found, pause)
		}
	}
	if rc.differs(v.Inputs) {
		for _, en := range rc.reading {
			decide(&en.VirtualHost)
			pause()
		}
	}
	for _, id := range others {
		if en := rc.entries.Get(id); en != nil {
			decide(&en.VirtualHost)
			pause()
		}
	}
	if u, ok := t.withInstead(rc, instead, &found); ok && u.Res != rc.Res {
		v.Layer.Add(u)
	} else {
		v.Layer.Remove(xds.Route, name)
	}
}

// differs reports whether a rule of the route configuration reads one of the labels in the given inputs.
func (rc *routeConfig) differs(inputs view.Inputs) bool {
	for _, en := range rc.reading {
		if (view.Reads{Labels: en.Reads}).Of(inputs).Labels != (intern.List[string]{}) {
			return true
		}
	}
	return false
}

// withInstead builds a route configuration in which the fragments of some virtual hosts are replaced. The map in the
// parameter instead has the new fragments by id. A virtual host whose new fragment is nil is left out. The second
// result is false if the map is empty, or if the build fails.
func (t *Table) withInstead(rc *routeConfig, instead map[string]*xds.Fragment, found *[]input.Problem) (layer.Unit, bool) {
	if len(instead) == 0 {
		return layer.Unit{}, false
	}
	other := map[int]bool{}
	for id := range instead {
		other[rc.runs.find(id)] = true
	}
	hosts := make([]*xds.Fragment, 0, len(rc.runs)+len(rc.tail))
	for i := range rc.runs {
		r := &rc.runs[i]
		frag := r.frag
		if other[i] {
			frag = join(rc.parts(r, instead))
		}
		if frag != nil {
			hosts = append(hosts, frag)
		}
	}
	return t.In.Make(t.spec(rc, append(hosts, rc.tailFragments()...)), model.MeshKey, found)
}
