package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/build/route"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// routes is one route configuration. It is kept for all ports that have virtual hosts, and published while a listener
// asks for it.
type routes struct {
	unit
	of      *owner
	name    string
	port    uint32 // 0: not of one port
	users   int    // listeners
	entries table[entry]
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

func portOfRoute(name string) uint32 {
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name = name[i+1:]
	}
	n, err := strconv.ParseUint(name, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// routesOf is a route configuration, or a new one of this name, that the scope may change.
func (s *scope) routesOf(name string) *routes {
	rc := s.routes[name]
	switch {
	case rc == nil:
		rc = &routes{of: s.own, name: name, port: portOfRoute(name), reading: map[string]*entry{}, taken: map[string]bool{}}
		s.routes[name] = rc
		s.addTo(rc)
	case rc.of != s.own:
		copied := *rc
		copied.of, copied.entries, copied.reading, copied.runs = s.own, rc.entries.fork(), maps.Clone(rc.reading), slices.Clone(rc.runs)
		rc = &copied
		s.routes[name] = rc
	}
	return rc
}

// addTo lists the virtual hosts that EnvoyFilters add; of two with one domain the first counts.
func (s *scope) addTo(rc *routes) {
	var found []Problem
	for _, p := range s.patches {
		if !patch.AddsVirtualHost(p, rc.name, rc.port) {
			continue
		}
		spec := vhost.Added{Patch: p}
		names := spec.Domains()
		if slices.ContainsFunc(names, func(d string) bool { return rc.taken[d] || d == "*" && rc.aloneHost() }) {
			found = append(found, Problem{Key: p.Filter.Key, Field: fmt.Sprintf("spec.configPatches[%d].patch.value.domains", p.Index), Code: problem.Duplicate,
				Severity: problem.Error, Message: "route configuration " + rc.name + " has one of them already; the virtual host is left out"})
			continue
		}
		for _, d := range names {
			rc.taken[d] = true
		}
		rc.added = append(rc.added, spec)
	}
	s.problems.set("added "+rc.name, found)
}

// use counts the listeners that ask for a route configuration.
func (s *scope) use(l *xds.Resource, by int) {
	if l == nil {
		return
	}
	for _, ref := range l.Needs {
		if ref.Type == xds.Route {
			s.routesOf(ref.Name).users += by
			s.step.mark(ref.Name)
		}
	}
}

// enter puts an entry into its route configuration in place of the one before; nil takes it out. Who else claims its
// names is to be planned again.
func (s *scope) enter(name, host string, en *entry) {
	rc := s.routesOf(name)
	old := rc.entries.get(host)
	if en == nil {
		rc.entries.put(host, nil)
		delete(rc.reading, host)
		rc.runs.remove(host)
		s.problems.set("route "+name+" "+host, nil)
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
	s.step.entry(name, host)
	for _, c := range differing(old, en) {
		s.rivals(c, func(rival string) {
			if rival != host && rc.entries.get(rival) != nil {
				s.step.entry(name, rival)
			}
		})
	}
}

// differing are the claims that only one of two entries has.
func differing(a, b *entry) (out []string) {
	if a != nil && b != nil && a.claims == b.claims {
		return nil
	}
	count := map[string]int{}
	if a != nil && !a.alone {
		for _, c := range a.claims.All() {
			count[c] |= 1
		}
	}
	if b != nil && !b.alone {
		for _, c := range b.claims.All() {
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
	rc.entries.put(en.host, en)
	if en.reads.Len() > 0 {
		rc.reading[en.host] = en
	}
}

// planEntry decides one virtual host anew and builds it where a listener asks for its route configuration.
func (s *scope) planEntry(rc *routes, en *entry) {
	var found []Problem
	next := *en
	spec, ok := s.specOf(rc, en, nil, &found)
	if !ok {
		next.spec, next.frag = vhost.Spec{}, nil
	} else if en.frag == nil || en.spec != spec {
		next.spec, next.frag = spec, nil
		if rc.users > 0 {
			next.frag = s.fragment(spec, s.blame(en), &found)
		} else {
			rc.complete = false
		}
	}
	s.problems.set("route "+rc.name+" "+en.host, found)
	if next.spec != en.spec || next.frag != en.frag {
		rc.hold(s.shared.entry(next))
	}
	if next.frag != en.frag || next.frag == nil {
		rc.runs.touch(en.host)
	}
}

func (s *scope) fragment(spec pool.FragmentSpec, blame model.Key, found *[]Problem) *xds.Fragment {
	f, err := s.pool.Fragment(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return nil
	}
	return f
}

// planRoutes plans one route configuration anew from its virtual hosts.
func (s *scope) planRoutes(rc *routes) {
	old := rc.unit
	rc.unit = unit{}
	if rc.users > 0 {
		s.completeEntries(rc)
		hosts := s.pieces[:0]
		for i := range rc.runs {
			c := &rc.runs[i]
			if c.dirty {
				c.frag, c.dirty = s.join(rc.parts(c, nil)), false
			}
			if c.frag != nil {
				hosts = append(hosts, c.frag)
			}
		}
		s.planTail(rc)
		hosts = append(hosts, rc.tailFragments()...)
		var found []Problem
		rc.unit, _ = s.make(s.routeSpec(rc, hosts), model.MeshKey, &found)
		clear(hosts)
		s.pieces = hosts
		s.problems.set("routes "+rc.name, found)
	}
	if rc.res != old.res {
		s.drop(old.res)
		s.put(rc.res)
	}
	if rc.users <= 0 && rc.entries.size == 0 {
		delete(s.routes, rc.name)
	}
}

func (s *scope) routeSpec(rc *routes, hosts []*xds.Fragment) route.Spec {
	return route.Spec{Name: rc.name, Hosts: fragments.List(hosts...), Patches: s.patches.matching(func(p model.Patch) bool {
		return patch.MergesRouteConfig(p, rc.name, rc.port)
	})}
}

// completeEntries builds what was only decided while no listener asked for it.
func (s *scope) completeEntries(rc *routes) {
	if rc.complete {
		return
	}
	rc.complete = true
	for _, en := range rc.entries.all() {
		if en.frag == nil && en.spec.Domains.Len() > 0 {
			var found []Problem
			next := *en
			next.frag = s.fragment(en.spec, s.blame(en), &found)
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
			f = rc.entries.get(host).frag
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
func (s *scope) planTail(rc *routes) {
	if rc.tail != nil {
		return // depends on nothing that changes while the scope stands
	}
	rc.tail = []tailSpec{}
	var found []Problem
	for _, spec := range rc.added {
		rc.tail = append(rc.tail, tailSpec{spec, s.fragment(spec, spec.Patch.Filter.Key, &found)})
	}
	if !rc.aloneHost() && !rc.taken["*"] {
		name := xds.BlockAll
		if s.passthrough() {
			name = xds.AllowAny
		}
		spec := vhost.CatchAll{Passthrough: s.passthrough(), Mesh: s.mesh, Patches: s.patches.matching(func(p model.Patch) bool {
			return patch.VirtualHostMatches(p, rc.name, rc.port, name)
		})}
		rc.tail = append(rc.tail, tailSpec{spec, s.fragment(spec, model.MeshKey, &found)})
	}
	s.problems.set("route "+rc.name, found)
}

// aloneHost says whether the route configuration belongs to one host that every name means.
func (rc *routes) aloneHost() bool {
	return strings.ContainsRune(rc.name, ':') && !strings.HasPrefix(rc.name, "unix:")
}

// variant is a scope's route configurations for proxies with certain labels: those in which a rule reads them.
type variant struct {
	layer
	proxyInputs intern.List[string]
	refs        int
}

// planVariant plans one route configuration for a family.
func (s *scope) planVariant(f *variant, name string) {
	rc := s.routes[name]
	if rc == nil || rc.users <= 0 || !rc.differs(f.proxyInputs.All()) {
		f.remove(xds.Route, name)
		return
	}
	var found []Problem
	instead := map[string]*xds.Fragment{}
	for host, en := range rc.reading {
		instead[host] = nil
		if spec, ok := s.specOf(rc, en, f.proxyInputs.All(), &found); ok {
			instead[host] = s.fragment(spec, s.blame(en), &found)
		}
	}
	var hosts []*xds.Fragment
	for i := range rc.runs {
		c := &rc.runs[i]
		frag := c.frag
		for _, host := range c.hosts {
			if _, ok := instead[host]; ok {
				frag = s.join(rc.parts(c, instead))
				break
			}
		}
		if frag != nil {
			hosts = append(hosts, frag)
		}
	}
	hosts = append(hosts, rc.tailFragments()...)
	if u, ok := s.make(s.routeSpec(rc, hosts), model.MeshKey, &found); ok {
		f.add(u)
	}
}

// differs says whether a rule of the route configuration reads a label that is among the facets.
func (rc *routes) differs(proxyInputs []string) bool {
	for _, en := range rc.reading {
		if labelsRead(proxyInputs, en.reads.All()).Len() > 0 {
			return true
		}
	}
	return false
}
