package plan

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// scope is the outbound side of all proxies that see the same.
type scope struct {
	*input
	layer
	key       view.Scope
	sidecar   *model.Sidecar // nil: none applies
	egress    []*egress
	patches   patchSet
	hosts     table[host]
	listeners table[outbound]
	routes    map[string]*routes
	variants  map[intern.List[string]]*variant
	// claimed are names that an EnvoyFilter's ADD has: what would be planned under them gives way.
	claimed  map[xds.Ref]bool
	problems problems
	step     *step
	seen     seen // nil while the scope is planned from nothing
	refs     int
	pause    func() // called between two pieces of a step, where others may have their turn; nil: they have none
	// own marks the listeners and route configurations that are this scope's alone; others it shares, and copies before it
	// changes them.
	own *owner
}

// host is one host as this scope sees it. Siblings share it: it is replaced, never changed, once its step is over.
type host struct {
	name      string
	svc       *model.Service // nil: only VirtualServices name it
	rules     rules
	clusters  []clusterUnit
	endpoints []unit
	traffic   []traffic
	routes    []string // route configurations in which it has an entry
}

// step is what is to be planned again in one step: by hosts first, then what these bring to listeners and route
// configurations.
type step struct {
	hosts     map[string]types
	members   map[string]types
	renewed   map[string]*host // hosts as they were before the step; nil: not there
	listeners map[string]bool
	routes    map[string]map[string]bool // route configuration -> hosts whose virtual hosts are to be decided again
}

func newStep() *step {
	return &step{hosts: map[string]types{}, members: map[string]types{}, renewed: map[string]*host{}, listeners: map[string]bool{}, routes: map[string]map[string]bool{}}
}

// mark: a route configuration.
func (st *step) mark(rc string) {
	if st.routes[rc] == nil {
		st.routes[rc] = map[string]bool{}
	}
}

// entry: one host's virtual host in a route configuration.
func (st *step) entry(rc, host string) {
	st.mark(rc)
	st.routes[rc][host] = true
}

// newScope plans a scope from nothing.
func newScope(w *input, key view.Scope) *scope {
	s := &scope{input: w, key: key, routes: map[string]*routes{},
		variants: map[intern.List[string]]*variant{}, claimed: map[xds.Ref]bool{}, problems: problems{}, step: newStep(), own: &owner{}}
	if r, ok := w.Get(key.Sidecar); ok {
		s.sidecar = r.(*model.Sidecar)
	}
	var found, bad []Problem
	s.egress, found = compileEgress(s.sidecar, key)
	s.patches, bad = patchesOf(w, key.Filters)
	found = append(found, bad...)
	s.planAdded(&found)
	s.planStatic(&found)
	s.planVirtual(&found)
	s.problems.set("scope", found)
	for r := range w.All(model.KindVirtualService) {
		s.pull(r.(*model.VirtualService), 1, func(string) {})
		for _, h := range r.(*model.VirtualService).Spec.GetHosts() {
			s.step.hosts[h] = all
		}
	}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range w.All(kind) {
			for _, h := range r.(*model.Service).Spec.GetHosts() {
				s.step.hosts[h] = all
			}
		}
	}
	s.run(w)
	return s
}

// side is what patches call the outbound side.
func (s *scope) side() networkingv1.EnvoyFilter_PatchContext {
	if s.key.Router {
		return networkingv1.EnvoyFilter_GATEWAY
	}
	return networkingv1.EnvoyFilter_SIDECAR_OUTBOUND
}

// planAdded plans the clusters and listeners that EnvoyFilters add.
func (s *scope) planAdded(found *[]Problem) {
	for u := range added(s.input, s.patches, s.side(), found) {
		s.layer.add(u)
		s.claimed[xds.Ref{Type: u.res.Type, Name: u.res.Name}] = true
		s.use(u.res, 1)
	}
}

// planStatic plans the clusters that every proxy has.
func (s *scope) planStatic(found *[]Problem) {
	side := s.side()
	for _, name := range []string{xds.BlackHole, xds.Passthrough} {
		if !s.patches.any(func(p model.Patch) bool { return removesCluster(p, side, name) }) {
			s.fixed(cluster.Static{Name: name, Mesh: s.mesh, Patches: s.patches.matching(func(p model.Patch) bool {
				return mergesCluster(p, side, name)
			})}, found)
		}
	}
}

// fixed plans what stays for as long as the scope stands.
func (s *scope) fixed(spec pool.ResourceSpec, found *[]Problem) {
	if u, ok := s.make(spec, model.MeshKey, found); ok && !s.claimed[xds.Ref{Type: u.res.Type, Name: u.res.Name}] {
		s.layer.add(u)
	}
}

// run plans what the step names, with everything that follows from it, and commits.
func (s *scope) run(w *input) {
	s.input = w
	w.tested(s.key)
	names := slices.Sorted(maps.Keys(s.step.hosts))
	for _, name := range names {
		s.resolve(name, s.step.hosts[name])
		s.rest()
	}
	for _, name := range names {
		s.contribute(name, s.step.hosts[name])
		s.rest()
	}
	for name, what := range s.step.members {
		s.follow(name, what)
		s.rest()
	}
	s.settle()
	for name := range s.step.listeners {
		if l := s.listeners.get(name); l != nil {
			s.planListener(l)
			s.rest()
		}
	}
	s.runRoutes()
	s.commit(s.shared)
	s.step = newStep()
}

// runRoutes plans the route configurations of the step.
func (s *scope) runRoutes() {
	changed := slices.Sorted(maps.Keys(s.step.routes))
	for _, name := range changed {
		rc := s.routes[name]
		if rc == nil {
			continue
		}
		for h := range s.step.routes[name] {
			if en := rc.entries.get(h); en != nil {
				s.planEntry(rc, en)
				s.rest()
			}
		}
		s.planRoutes(rc)
		s.rest()
	}
	for _, f := range s.variants {
		for _, name := range changed {
			s.planVariant(f, name)
			s.rest()
		}
		f.commit(s.shared)
	}
}

// rest lets others have their turn.
func (s *scope) rest() {
	if s.pause != nil {
		s.pause()
	}
}

// resolve decides what a host is in this scope, and plans its clusters and their assignments.
func (s *scope) resolve(name string, what types) {
	h := s.renew(name)
	h.svc, h.rules = s.serviceFor(name), rules{}
	if h.svc != nil {
		h.rules = s.rulesFor(name, h.svc)
	}
	if what.has(cds) {
		s.planClusters(h)
	}
	if what.has(eds) {
		s.planEndpoints(h)
	}
}

// renew is a host, or a new one of this name, in a copy that the step may change.
func (s *scope) renew(name string) *host {
	h := &host{name: name}
	was := s.hosts.get(name)
	if was != nil {
		*h = *was
	} else {
		s.seen.add(name, s)
	}
	if _, again := s.step.renewed[name]; !again {
		s.step.renewed[name] = was
	}
	s.hosts.put(name, h)
	return h
}

// contribute decides what a host brings to listeners and route configurations. All hosts of the step are resolved.
func (s *scope) contribute(name string, what types) {
	h := s.hosts.get(name)
	if what.has(lds) && !s.key.Router {
		s.planTraffic(h)
	}
	if what.has(rds) && !s.key.Router {
		entries := s.entriesOf(h)
		for _, rc := range h.routes {
			if entries[rc] == nil {
				s.enter(rc, name, nil)
			}
		}
		for rc, en := range entries {
			s.enter(rc, name, en)
		}
		h.routes = slices.Sorted(maps.Keys(entries))
	}
	if h.svc == nil && len(h.clusters)+len(h.endpoints)+len(h.traffic)+len(h.routes) == 0 {
		s.hosts.put(name, nil)
		s.seen.remove(name, s)
	}
}

func (s *scope) planTraffic(h *host) {
	now, found := s.trafficOf(h)
	s.problems.set("host "+h.name, found)
	if slices.Equal(h.traffic, now) {
		return
	}
	for _, t := range h.traffic {
		s.bring(h.name, t, -1)
	}
	for _, t := range now {
		s.bring(h.name, t, 1)
	}
	h.traffic = now
}

// follow plans what depends on a host's endpoints alone: assignments, clusters of DNS services, listeners of headless
// ones.
func (s *scope) follow(name string, what types) {
	if h := s.hosts.get(name); h == nil || h.svc == nil {
		return
	}
	h := s.renew(name)
	if what.has(cds) { // DNS services have their endpoints in them, others the identities
		s.planClusters(h)
	}
	if what.has(eds) {
		s.planEndpoints(h)
	}
	if what.has(lds) && h.svc.Spec.GetHeadless() && !s.key.Router {
		s.planTraffic(h)
	}
}

// make builds what a Spec says, or answers from the pool. False: it cannot be built, and is left out with a problem.
func (w *input) make(spec pool.ResourceSpec, blame model.Key, found *[]Problem) (unit, bool) {
	r, err := w.pool.Resource(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return unit{}, false
	}
	return unit{spec, r}, true
}

func (s *scope) put(r *xds.Resource) {
	if r != nil && !s.claimed[xds.Ref{Type: r.Type, Name: r.Name}] {
		s.set(r.Type, r.Name, r)
	}
}

func (s *scope) drop(r *xds.Resource) {
	if r != nil && !s.claimed[xds.Ref{Type: r.Type, Name: r.Name}] {
		s.set(r.Type, r.Name, nil)
	}
}

// replace puts one list of units in the place of another; both are short.
func (s *scope) replace(old, now []unit) {
	for _, was := range old {
		if !slices.ContainsFunc(now, func(u unit) bool { return u.res.Name == was.res.Name }) {
			s.drop(was.res)
		}
	}
	for _, u := range now {
		if !slices.ContainsFunc(old, func(was unit) bool { return u.res == was.res }) {
			s.put(u.res)
		}
	}
}

// reads says whether the scope's view names one of the records.
func (s *scope) reads(keys map[model.Key]bool) bool {
	return keys[s.key.Sidecar] || slices.ContainsFunc(s.key.Filters.All(), func(p view.Patch) bool { return keys[p.Filter] })
}

// apply plans again what a change touches here.
func (s *scope) apply(w *input, d *dirt) {
	s.input = w
	seen := func(host string) {
		s.step.hosts[host] |= all
		w.routesTo(host, func(vs *model.VirtualService) {
			for _, h := range vs.Spec.GetHosts() {
				s.touch(h, lds|rds)
			}
		})
	}
	for _, e := range d.pulls {
		if old, ok := e.Old.(*model.VirtualService); ok {
			s.pull(old, -1, seen)
		}
		if now, ok := e.New.(*model.VirtualService); ok {
			s.pull(now, 1, seen)
		}
	}
	for h, t := range d.hosts {
		s.step.hosts[h] |= t
	}
	for pattern, t := range d.patterns {
		s.cover(pattern, t)
	}
	for h, t := range d.members {
		if s.hosts.get(h) != nil {
			s.step.members[h] |= t
		}
	}
	if len(s.step.hosts)+len(s.step.members) > 0 {
		s.run(w)
	}
}

// touch marks a host, or the hosts that a wildcard covers.
func (s *scope) touch(host string, t types) {
	s.step.hosts[host] |= t
	if isWildcard(host) {
		s.cover(host, t)
	}
}

func (s *scope) cover(pattern string, t types) {
	for name := range s.hosts.all() {
		if covers(pattern, name) {
			s.step.hosts[name] |= t
		}
	}
}

// variantOf finds or plans the route configurations for proxies with these facets.
func (s *scope) variantOf(proxyInputs intern.List[string]) *variant {
	f := s.variants[proxyInputs]
	if f == nil {
		f = &variant{proxyInputs: proxyInputs}
		for name := range s.routes {
			s.planVariant(f, name)
		}
		f.commit(s.shared)
		s.variants[proxyInputs] = f
	}
	return f
}
