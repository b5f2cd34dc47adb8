package sidecar

import (
	"fmt"
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

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

// routeTable is the route configurations of a scope.
type routeTable struct {
	*scope
	table   map[routeKey]*routeConfig
	changed map[routeKey]map[string]bool // to be planned again in this step, with the entries that are to be decided again
	pieces  []*xds.Fragment              // reused by plan
}

func newRouteTable(s *scope) *routeTable {
	return &routeTable{scope: s, table: map[routeKey]*routeConfig{}, changed: map[routeKey]map[string]bool{}}
}

// fork is the table of a forked scope.
func (rs *routeTable) fork(to *scope) *routeTable {
	next := newRouteTable(to)
	next.table = maps.Clone(rs.table)
	return next
}

// mark marks a route configuration.
func (rs *routeTable) mark(key routeKey) {
	if rs.changed[key] == nil {
		rs.changed[key] = map[string]bool{}
	}
}

// markEntry marks one entry of a route configuration.
func (rs *routeTable) markEntry(key routeKey, id string) {
	rs.mark(key)
	rs.changed[key][id] = true
}

// changedKeys are the route configurations of the step.
func (rs *routeTable) changedKeys() []routeKey {
	return slices.SortedFunc(maps.Keys(rs.changed), routeKey.compare)
}

// routeConfig is one route configuration. It is kept for all ports that have virtual hosts, and published while a listener
// asks for it.
type routeConfig struct {
	layer.Unit
	routeKey
	of      *editor
	name    string             // of the key, as Envoy calls it
	users   int                // listeners
	entries layer.Table[entry] // by id
	runs    runs
	reading map[string]*entry // those whose rules read labels of the proxy, by id
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

// get is a route configuration, or a new one, that the scope may change.
func (rs *routeTable) get(key routeKey) *routeConfig {
	rc := rs.table[key]
	switch {
	case rc == nil:
		rc = &routeConfig{of: rs.own, routeKey: key, name: key.name(), reading: map[string]*entry{}, taken: map[string]bool{}}
		rs.table[key] = rc
		rs.addTo(rc)
	case rc.of != rs.own:
		copied := *rc
		copied.of, copied.entries, copied.reading, copied.runs = rs.own, rc.entries.Fork(), maps.Clone(rc.reading), slices.Clone(rc.runs)
		rc = &copied
		rs.table[key] = rc
	}
	return rc
}

// addTo lists the virtual hosts that EnvoyFilters add; of two with one domain the first counts.
func (rs *routeTable) addTo(rc *routeConfig) {
	var found []input.Problem
	for _, p := range rs.patches {
		if !patch.AddsVirtualHost(p, rs.patched(rc)) {
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
	rs.problems.Set("added "+rc.name, found)
}

// useOf counts the route configurations that a listener asks for: what its Spec says, or what an EnvoyFilter has put in its place.
func (rs *routeTable) useOf(l *outbound, by int) {
	if l.Res == nil {
		return
	}
	for _, ref := range l.Res.Needs {
		switch {
		case ref.Type != xds.Route:
		case l.route != (routeKey{}) && ref.Name == l.route.name():
			rs.use(l.route, by)
		default:
			rs.use(routeNamed(ref.Name), by)
		}
	}
}

// use counts a listener that asks for a route configuration.
func (rs *routeTable) use(key routeKey, by int) {
	rs.get(key).users += by
	rs.mark(key)
}

// enter puts a host's entry into its route configuration in place of the one before; nil takes it out. Who else has its
// names is to be planned again.
func (rs *routeTable) enter(key routeKey, host string, en *entry) {
	rc, id := rs.get(key.table()), key.entry(host)
	old := rc.entries.Get(id)
	if en == nil {
		rc.entries.Put(id, nil)
		delete(rc.reading, id)
		rc.runs.remove(id)
		rs.problems.Set("route "+rc.name+" "+id, nil)
	} else {
		if old != nil {
			en.spec, en.frag = old.spec, old.frag
		} else {
			rc.runs.touch(id)
		}
		if old == nil || *old != *en {
			delete(rc.reading, id)
			rc.hold(en)
		}
	}
	rs.markEntry(rc.routeKey, id)
	for _, c := range differing(old, en) {
		rs.rivals(key.withoutPort(c), func(rival string) {
			if other := key.entry(rival); rival != host && rc.entries.Get(other) != nil {
				rs.markEntry(rc.routeKey, other)
			}
		})
	}
}

// differing are the domains that only one of two entries has; all, where they have them before other hosts.
func differing(a, b *entry) (out []string) {
	var same bool
	if a != nil && b != nil {
		same = a.own == b.own && sameRank(a.service, b.service)
		if same && a.domains == b.domains {
			return nil
		}
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
		if n != 3 || !same {
			out = append(out, c)
		}
	}
	return out
}

// sameRank says whether two versions of a host's service have domains before the same other hosts.
func sameRank(a, b *model.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Created == b.Created
}

// hold keeps a host's entry in place of the one before.
func (rc *routeConfig) hold(en *entry) {
	rc.entries.Put(en.id, en)
	if en.reads.Len() > 0 {
		rc.reading[en.id] = en
	}
}

// planEntry decides one virtual host again and builds it where a listener asks for its route configuration.
func (rs *routeTable) planEntry(rc *routeConfig, en *entry) {
	var found []input.Problem
	next := *en
	spec, ok := rs.specOf(rc, en, rs.hosts.Plain(), &found)
	if !ok {
		next.spec, next.frag = vhost.Spec{}, nil
	} else if en.frag == nil || en.spec != spec {
		next.spec, next.frag = spec, nil
		if rc.users > 0 {
			next.frag = rs.fragment(spec, rs.blame(en), &found)
		} else {
			rc.complete = false
		}
	}
	rs.problems.Set("route "+rc.name+" "+en.id, found)
	if next.spec != en.spec || next.frag != en.frag {
		rc.hold(layer.Share(rs.in.Sharing, sharedEntry(next), &next, (*entry).equal))
	}
	if next.frag != en.frag || next.frag == nil {
		rc.runs.touch(en.id)
	}
}

func (rs *routeTable) fragment(spec pool.FragmentSpec, blame model.Key, found *[]input.Problem) *xds.Fragment {
	frag, err := rs.in.Pool.Fragment(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return nil
	}
	return frag
}

// replan decides the virtual hosts that are marked in a route configuration again, and plans it.
func (rs *routeTable) replan(key routeKey, rest func()) {
	rc := rs.table[key]
	if rc == nil {
		return
	}
	for id := range rs.changed[key] {
		if en := rc.entries.Get(id); en != nil {
			rs.planEntry(rc, en)
			rest()
		}
	}
	rs.plan(rc)
	rest()
}

// plan plans one route configuration again from its virtual hosts.
func (rs *routeTable) plan(rc *routeConfig) {
	old := rc.Unit
	rc.Unit = layer.Unit{}
	if rc.users > 0 {
		rs.completeEntries(rc)
		hosts := rs.pieces[:0]
		for i := range rc.runs {
			c := &rc.runs[i]
			if c.dirty {
				c.frag, c.dirty = join(rc.parts(c, nil)), false
			}
			if c.frag != nil {
				hosts = append(hosts, c.frag)
			}
		}
		rs.planTail(rc)
		hosts = append(hosts, rc.tailFragments()...)
		var found []input.Problem
		rc.Unit, _ = rs.in.Make(rs.spec(rc, hosts), model.MeshKey, &found)
		clear(hosts)
		rs.pieces = hosts
		rs.problems.Set("routes "+rc.name, found)
	}
	if rc.Res != old.Res {
		rs.layer.Drop(old.Res)
		rs.layer.Put(rc.Res)
	}
	if rc.users <= 0 && rc.entries.Len() == 0 {
		delete(rs.table, rc.routeKey)
	}
}

// patched is what patches are matched with of a route configuration.
func (rs *routeTable) patched(rc *routeConfig) patch.RouteConfig {
	return patch.RouteConfig{Name: rc.name, Port: rc.port, Context: host.Side(rs.key)}
}

func (rs *routeTable) spec(rc *routeConfig, hosts []*xds.Fragment) route.Spec {
	return route.Spec{Name: rc.name, Hosts: fragments.List(hosts...), WithPorts: rc.kind == ofProxy, Patches: rs.patches.Matching(func(p model.Patch) bool {
		return patch.MergesRouteConfig(p, rs.patched(rc))
	})}
}

// completeEntries builds what was only decided while no listener asked for it.
func (rs *routeTable) completeEntries(rc *routeConfig) {
	if rc.complete {
		return
	}
	rc.complete = true
	for _, en := range rc.entries.All() {
		if en.frag == nil && en.spec.Domains.Len() > 0 {
			var found []input.Problem
			next := *en
			next.frag = rs.fragment(en.spec, rs.blame(en), &found)
			rc.hold(&next)
			rc.runs.touch(en.id)
		}
	}
}

// parts are the fragments of a run; `instead` replaces some of them.
func (rc *routeConfig) parts(c *chunk, instead map[string]*xds.Fragment) (out []*xds.Fragment) {
	for _, id := range c.entries {
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

func (rc *routeConfig) tailFragments() (out []*xds.Fragment) {
	for _, t := range rc.tail {
		if t.frag != nil {
			out = append(out, t.frag)
		}
	}
	return out
}

// planTail plans what ends a route configuration: what patches add, then the virtual host for all other names.
func (rs *routeTable) planTail(rc *routeConfig) {
	if rc.tail != nil {
		return // depends on nothing that changes while the scope stands
	}
	rc.tail = []tailSpec{}
	var found []input.Problem
	for _, spec := range rc.added {
		rc.tail = append(rc.tail, tailSpec{spec, rs.fragment(spec, spec.Patch.Filter.Key, &found)})
	}
	if rc.kind != ofHost && !rc.taken["*"] {
		passes := rs.passthrough()
		spec := vhost.CatchAll{EgressProxy: rs.egressProxy(), ByName: rs.unknown().ByName, Mesh: rs.in.Meshes.VirtualHost, Proxy: rs.key.Routes}
		spec.Sent = spec.ByName && rs.in.Mesh.Spec.GetOutboundTrafficPolicy().GetTls().GetMode() == networkingv1.ClientTLSSettings_DISABLE
		if rc.kind == ofProxy { // what was sent to the proxy itself would be passed on to it, again and again
			passes, spec.Sent = passes && (rs.egressProxy() != "" || spec.ByName), false
		}
		spec.Passthrough = passes
		spec.Patches = rs.patches.Matching(func(p model.Patch) bool { return patch.VirtualHostMatches(p, rs.patched(rc), spec.Name()) })
		rc.tail = append(rc.tail, tailSpec{spec, rs.fragment(spec, model.MeshKey, &found)})
	}
	rs.problems.Set("route "+rc.name, found)
}
