package routes

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/route"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// replan plans a route configuration again. First it plans again those of its virtual hosts that are marked in
// t.changed.
func (t *Table) replan(name string, pause func()) {
	rc := t.configs[name]
	if rc == nil {
		return
	}
	for id := range t.changed[name] {
		if en := rc.entries.Get(id); en != nil {
			t.planEntry(rc, en, pause)
			pause()
		}
	}
	t.plan(rc, pause)
	pause()
}

// planEntry computes the Spec (the inputs) of one virtual host again. It builds the fragment (the encoded virtual host)
// only if a listener requests the route configuration.
func (t *Table) planEntry(rc *routeConfig, en *entry, pause func()) {
	var found []input.Problem
	next := *en
	spec, ok := t.specOf(rc, &en.VirtualHost, t.Hosts.WithoutInputs(), &found, pause)
	if !ok {
		next.spec, next.frag = vhost.Spec{}, nil
	} else if en.frag == nil || en.spec != spec {
		next.spec, next.frag = spec, nil
		if rc.users > 0 {
			next.frag = t.fragment(spec, t.names.Blame(&en.VirtualHost), &found, pause)
		} else {
			rc.complete = false
		}
	}
	t.Problems.Set(unitOf(rc, en.ID), found)
	if next.spec != en.spec || next.frag != en.frag {
		rc.store(layer.Share(t.In.Sharing, sharedEntry(next), &next, (*entry).equal))
	}
	if next.frag != en.frag || next.frag == nil {
		rc.runs.touch(en.ID)
	}
}

// fragment builds the fragment of a Spec, or finds it in the pool. It calls pause between two pieces of the build.
// After an error the result is nil, and the error is appended to found as a problem.
func (t *Table) fragment(spec vhost.Spec, blame model.Key, found *[]input.Problem, pause func()) *xds.Fragment {
	return reported(blame, found)(t.In.Pool.FragmentOf(spec, func() (*xds.Fragment, error) { return spec.FragmentInPieces(pause) }))
}

// tailFragment does the same as fragment for a virtual host of the tail, but without pauses. The tail has the virtual
// hosts that EnvoyFilters add, and the catch-all (the virtual host for all other names).
func (t *Table) tailFragment(spec pool.FragmentSpec, blame model.Key, found *[]input.Problem) *xds.Fragment {
	return reported(blame, found)(t.In.Pool.Fragment(spec))
}

// reported returns a function that takes the results of a build. Without an error, this function returns the fragment.
// After an error, it appends a problem to found and returns nil.
func reported(blame model.Key, found *[]input.Problem) func(*xds.Fragment, error) *xds.Fragment {
	return func(frag *xds.Fragment, err error) *xds.Fragment {
		if err != nil {
			*found = append(*found, model.ProblemOf(err, blame))
			return nil
		}
		return frag
	}
}

// plan plans one route configuration again from its virtual hosts.
func (t *Table) plan(rc *routeConfig, pause func()) {
	old := rc.Unit
	rc.Unit = layer.Unit{}
	if rc.users > 0 {
		t.completeEntries(rc, pause)
		hosts := t.pieces[:0]
		for i := range rc.runs {
			r := &rc.runs[i]
			if r.stale {
				r.frag, r.stale = join(rc.parts(r, nil)), false
				pause()
			}
			if r.frag != nil {
				hosts = append(hosts, r.frag)
			}
		}
		t.planTail(rc)
		hosts = append(hosts, rc.tailFragments()...)
		var found []input.Problem
		rc.Unit, _ = t.In.Make(t.spec(rc, hosts), model.MeshKey, &found)
		clear(hosts)
		t.pieces = hosts
		t.Problems.Set("routes "+rc.Name, found)
	}
	if rc.Res != old.Res {
		t.Layer.Drop(old.Res)
		t.Layer.Put(rc.Res)
	}
	if rc.users <= 0 && rc.entries.Len() == 0 {
		delete(t.configs, rc.Name)
	}
}

// spec returns the Spec of a route configuration that consists of the given fragments.
func (t *Table) spec(rc *routeConfig, hosts []*xds.Fragment) route.Spec {
	patches := t.Patches.Matching(func(p model.Patch) bool { return patch.MergesRouteConfig(p, t.matched(rc)) })
	return route.Spec{Name: rc.Name, Hosts: fragments.List(hosts...), WithPorts: rc.WithPorts, Patches: patches}
}

// completeEntries builds the fragments that were not built while no listener requested the route configuration.
func (t *Table) completeEntries(rc *routeConfig, pause func()) {
	if rc.complete {
		return
	}
	rc.complete = true
	for _, en := range rc.entries.All() {
		if en.frag == nil && en.spec.Domains.Len() > 0 {
			var found []input.Problem
			next := *en
			next.frag = t.fragment(en.spec, t.names.Blame(&en.VirtualHost), &found, pause)
			rc.store(&next)
			rc.runs.touch(en.ID)
			pause()
		}
	}
}

// parts returns the fragments of a run (a sequence of virtual hosts). The map in the parameter instead has replacements
// for the fragments of some ids. A virtual host whose replacement is nil is left out.
func (rc *routeConfig) parts(r *run, instead map[string]*xds.Fragment) (out []*xds.Fragment) {
	for _, id := range r.ids {
		f, ok := instead[id]
		if !ok {
			f = rc.entries.Get(id).frag
		}
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}

// tailFragments returns the built fragments of the tail.
func (rc *routeConfig) tailFragments() (out []*xds.Fragment) {
	for _, last := range rc.tail {
		if last.frag != nil {
			out = append(out, last.frag)
		}
	}
	return out
}

// planTail plans the end of a route configuration: the virtual hosts that patches add, and then the catch-all.
func (t *Table) planTail(rc *routeConfig) {
	if rc.tail != nil {
		return // the inputs of a planned tail do not change
	}
	rc.tail = []tailSpec{}
	var found []input.Problem
	for _, spec := range rc.added {
		rc.tail = append(rc.tail, tailSpec{spec, t.tailFragment(spec, spec.Patch.Filter.Key, &found)})
	}
	if spec, ok := t.names.CatchAll(rc.Config); ok && !rc.taken["*"] {
		spec.Patches = t.Patches.Matching(func(p model.Patch) bool {
			return patch.VirtualHostMatches(p, t.matched(rc), spec.Name())
		})
		rc.tail = append(rc.tail, tailSpec{spec, t.tailFragment(spec, model.MeshKey, &found)})
	}
	t.Problems.Set("route "+rc.Name, found)
}
