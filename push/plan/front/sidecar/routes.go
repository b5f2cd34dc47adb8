package sidecar

import (
	"fmt"
	"maps"
	"slices"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/route"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// routes is one route configuration. It is kept for all ports that have virtual hosts, and published while a listener
// asks for it.
type routes struct {
	layer.Unit
	routeKey
	of      *editor
	name    string // of the key, as Envoy calls it
	users   int    // listeners
	entries layer.Table[entry]
	runs    runs
	reading map[string]*entry // those whose rules read labels of the proxy
	tail    []tailSpec        // virtual hosts that EnvoyFilters add, and the catch-all; nil: not planned yet
	added   []vhost.Added     // by EnvoyFilters
	taken   map[string]bool   // the domains of those
	// complete: all entries are built. False while no listener asks: they are decided only.
	complete bool
}

// tailSpec is one of the last virtual hosts, and its Spec.
type tailSpec struct {
	spec pool.FragmentSpec
	frag *xds.Fragment
}

// routesOf is a route configuration, or a new one, that the scope may change.
func (f *Front) routesOf(key routeKey) *routes {
	rc := f.routes[key]
	switch {
	case rc == nil:
		rc = &routes{of: f.own, routeKey: key, name: key.name(), reading: map[string]*entry{}, taken: map[string]bool{}}
		f.routes[key] = rc
		f.addTo(rc)
	case rc.of != f.own:
		copied := *rc
		copied.of, copied.entries, copied.reading, copied.runs = f.own, rc.entries.Fork(), maps.Clone(rc.reading), slices.Clone(rc.runs)
		rc = &copied
		f.routes[key] = rc
	}
	return rc
}

// addTo lists the virtual hosts that EnvoyFilters add; of two with one domain the first counts.
func (f *Front) addTo(rc *routes) {
	var found []input.Problem
	for _, p := range f.patches {
		if !patch.AddsVirtualHost(p, f.patched(rc)) {
			continue
		}
		spec := vhost.Added{Patch: p}
		names := spec.Domains()
		if slices.ContainsFunc(names, func(d string) bool { return rc.taken[d] || d == "*" && rc.kind == ofHost }) {
			found = append(found, input.Problem{Key: p.Filter.Key, Field: fmt.Sprintf("spec.configPatches[%d].patch.value.domains", p.Index), Code: problem.Duplicate,
				Severity: problem.Error, Message: "route configuration " + rc.name + " has one of them already; the virtual host is left out"})
			continue
		}
		for _, d := range names {
			rc.taken[d] = true
		}
		rc.added = append(rc.added, spec)
	}
	f.problems.Set("added "+rc.name, found)
}

// useOf counts the route configurations that a listener asks for: what its Spec says, or what an EnvoyFilter has put in its place.
func (f *Front) useOf(l *outbound, by int) {
	if l.Res == nil {
		return
	}
	for _, ref := range l.Res.Needs {
		switch {
		case ref.Type != xds.Route:
		case l.route != (routeKey{}) && ref.Name == l.route.name():
			f.use(l.route, by)
		default:
			f.use(routeNamed(ref.Name), by)
		}
	}
}

// use counts a listener that asks for a route configuration.
func (f *Front) use(key routeKey, by int) {
	f.routesOf(key).users += by
	f.step.mark(key)
}

// enter puts an entry into its route configuration in place of the one before; nil takes it out. Who else has its
// names is to be planned again.
func (f *Front) enter(key routeKey, host string, en *entry) {
	rc := f.routesOf(key)
	old := rc.entries.Get(host)
	if en == nil {
		rc.entries.Put(host, nil)
		delete(rc.reading, host)
		rc.runs.remove(host)
		f.problems.Set("route "+rc.name+" "+host, nil)
	} else {
		if old != nil {
			en.spec, en.frag = old.spec, old.frag
		} else {
			rc.runs.touch(host)
		}
		if old == nil || *old != *en {
			delete(rc.reading, host)
			rc.hold(en)
		}
	}
	f.step.entry(key, host)
	for _, c := range differing(old, en) {
		f.rivals(c, func(rival string) {
			if rival != host && rc.entries.Get(rival) != nil {
				f.step.entry(key, rival)
			}
		})
	}
}

// differing are the domains that only one of two entries has.
func differing(a, b *entry) (out []string) {
	if a != nil && b != nil && a.domains == b.domains {
		return nil
	}
	count := map[string]int{}
	if a != nil && !a.alone {
		for _, c := range a.domains.All() {
			count[c] |= 1
		}
	}
	if b != nil && !b.alone {
		for _, c := range b.domains.All() {
			count[c] |= 2
		}
	}
	for c, n := range count {
		if n != 3 {
			out = append(out, c)
		}
	}
	return out
}

// hold keeps a host's entry in place of the one before.
func (rc *routes) hold(en *entry) {
	rc.entries.Put(en.host, en)
	if en.reads.Len() > 0 {
		rc.reading[en.host] = en
	}
}

// planEntry decides one virtual host again and builds it where a listener asks for its route configuration.
func (f *Front) planEntry(rc *routes, en *entry) {
	var found []input.Problem
	next := *en
	spec, ok := f.specOf(rc, en, f.hosts.Plain(), &found)
	if !ok {
		next.spec, next.frag = vhost.Spec{}, nil
	} else if en.frag == nil || en.spec != spec {
		next.spec, next.frag = spec, nil
		if rc.users > 0 {
			next.frag = f.fragment(spec, f.blame(en), &found)
		} else {
			rc.complete = false
		}
	}
	f.problems.Set("route "+rc.name+" "+en.host, found)
	if next.spec != en.spec || next.frag != en.frag {
		rc.hold(layer.Share(f.in.Sharing, sharedEntry(next), &next, (*entry).equal))
	}
	if next.frag != en.frag || next.frag == nil {
		rc.runs.touch(en.host)
	}
}

func (f *Front) fragment(spec pool.FragmentSpec, blame model.Key, found *[]input.Problem) *xds.Fragment {
	frag, err := f.in.Pool.Fragment(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return nil
	}
	return frag
}

// planRoutes plans one route configuration again from its virtual hosts.
func (f *Front) planRoutes(rc *routes) {
	old := rc.Unit
	rc.Unit = layer.Unit{}
	if rc.users > 0 {
		f.completeEntries(rc)
		hosts := f.pieces[:0]
		for i := range rc.runs {
			c := &rc.runs[i]
			if c.dirty {
				c.frag, c.dirty = join(rc.parts(c, nil)), false
			}
			if c.frag != nil {
				hosts = append(hosts, c.frag)
			}
		}
		f.planTail(rc)
		hosts = append(hosts, rc.tailFragments()...)
		var found []input.Problem
		rc.Unit, _ = f.in.Make(f.routeSpec(rc, hosts), model.MeshKey, &found)
		clear(hosts)
		f.pieces = hosts
		f.problems.Set("routes "+rc.name, found)
	}
	if rc.Res != old.Res {
		f.layer.Drop(old.Res)
		f.layer.Put(rc.Res)
	}
	if rc.users <= 0 && rc.entries.Len() == 0 {
		delete(f.routes, rc.routeKey)
	}
}

// patched is what patches are matched with of a route configuration.
func (f *Front) patched(rc *routes) patch.RouteConfig {
	return patch.RouteConfig{Name: rc.name, Port: rc.port, Context: host.Side(f.key)}
}

func (f *Front) routeSpec(rc *routes, hosts []*xds.Fragment) route.Spec {
	return route.Spec{Name: rc.name, Hosts: fragments.List(hosts...), Patches: f.patches.Matching(func(p model.Patch) bool {
		return patch.MergesRouteConfig(p, f.patched(rc))
	})}
}

// completeEntries builds what was only decided while no listener asked for it.
func (f *Front) completeEntries(rc *routes) {
	if rc.complete {
		return
	}
	rc.complete = true
	for _, en := range rc.entries.All() {
		if en.frag == nil && en.spec.Domains.Len() > 0 {
			var found []input.Problem
			next := *en
			next.frag = f.fragment(en.spec, f.blame(en), &found)
			rc.hold(&next)
			rc.runs.touch(en.host)
		}
	}
}

// parts are the fragments of a run; `instead` replaces some of them.
func (rc *routes) parts(c *chunk, instead map[string]*xds.Fragment) (out []*xds.Fragment) {
	for _, host := range c.hosts {
		f, ok := instead[host]
		if !ok {
			f = rc.entries.Get(host).frag
		}
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}

func (rc *routes) tailFragments() (out []*xds.Fragment) {
	for _, t := range rc.tail {
		if t.frag != nil {
			out = append(out, t.frag)
		}
	}
	return out
}

// planTail plans what ends a route configuration: what patches add, then the virtual host for all other names.
func (f *Front) planTail(rc *routes) {
	if rc.tail != nil {
		return // depends on nothing that changes while the scope stands
	}
	rc.tail = []tailSpec{}
	var found []input.Problem
	for _, spec := range rc.added {
		rc.tail = append(rc.tail, tailSpec{spec, f.fragment(spec, spec.Patch.Filter.Key, &found)})
	}
	if rc.kind != ofHost && !rc.taken["*"] {
		name := xds.BlockAll
		if f.passthrough() {
			name = xds.AllowAny
		}
		spec := vhost.CatchAll{Passthrough: f.passthrough(), Mesh: f.in.Meshes.VirtualHost, Patches: f.patches.Matching(func(p model.Patch) bool {
			return patch.VirtualHostMatches(p, f.patched(rc), name)
		})}
		rc.tail = append(rc.tail, tailSpec{spec, f.fragment(spec, model.MeshKey, &found)})
	}
	f.problems.Set("route "+rc.name, found)
}
