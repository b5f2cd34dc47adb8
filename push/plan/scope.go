package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/nametable"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// scope contains the outbound resources of all proxies with the same view.Scope. It has a host table (the hosts that
// the proxies may reach, with clusters and endpoints). It also has a front, which derives listeners and route
// configurations from the host table. If rules read inputs of proxies, such as labels, the scope has variants for these
// inputs.
type scope struct {
	in       *input.Input
	layer    *layer.Layer // contains the resources of the host table and the front
	key      view.Scope
	sidecar  *model.Sidecar // nil if no Sidecar applies
	hosts    *host.Table
	front    front.Front
	variants map[view.Inputs]*variant
	names    map[string]*nametable.Table // the names that proxies resolve, by network; only tables that proxies have requested
	problems []input.Problem             // of the patches (EnvoyFilters) of the scope
	step     step
	index    hostIndex // nil while the scope is planned from scratch, and for unpublished copies (shadows)
	refs     int       // number of views (groups of proxies with equal configuration) that use the scope
	pause    func()    // called between two pieces of a step; may be nil
}

// step lists the hosts to be planned again for one change, each with the types of resources to plan.
type step struct {
	hosts   map[string]input.Types
	members map[string]input.Types // hosts of which only the endpoints have changed
	renewed map[string]bool        // hosts that may have appeared or disappeared since the scope was forked
}

// newStep returns a step without hosts.
func newStep() step {
	return step{hosts: map[string]input.Types{}, members: map[string]input.Types{}, renewed: map[string]bool{}}
}

// variant contains the resources for proxies with certain inputs, if these resources differ from those of the scope.
type variant struct {
	*host.Variation
	refs int
}

// newScope plans a scope from scratch. It calls pause between two pieces of the work, unless pause is nil.
func newScope(in *input.Input, key view.Scope, pause func()) *scope {
	s := &scope{in: in, layer: &layer.Layer{}, key: key, variants: map[view.Inputs]*variant{}, step: newStep()}
	if r, ok := in.Get(key.Sidecar); ok {
		s.sidecar = r.(*model.Sidecar)
	}
	var patches input.PatchSet
	patches, s.problems = in.Patches(key.Filters)
	s.front, s.hosts = kinds[key.Kind].front(in, key, s.sidecar, patches, s.layer)
	s.pauses(pause)
	for r := range in.All(model.KindVirtualService) {
		s.hosts.Pull(r.(*model.VirtualService), 1, func(string) {})
		for _, h := range r.(*model.VirtualService).Spec.GetHosts() {
			s.step.hosts[h] = input.All
		}
	}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range in.All(kind) {
			for _, h := range r.(*model.Service).Spec.GetHosts() {
				s.step.hosts[h] = input.All
			}
		}
	}
	s.run(in)
	return s
}

// read replaces the input that the scope plans with.
func (s *scope) read(in *input.Input) {
	s.in = in
	s.hosts.Read(in)
	s.front.Read(in)
}

// run plans the hosts of the step and all resources that depend on these hosts, and commits the layers.
func (s *scope) run(in *input.Input) {
	s.read(in)
	in.Tested(s.key)
	names := slices.Sorted(maps.Keys(s.step.hosts))
	for _, name := range names {
		s.hosts.Resolve(name, s.step.hosts[name])
		s.yield()
	}
	for _, name := range names { // after all hosts of the step are resolved, since routes depend on several hosts
		if !s.front.Host(name, s.step.hosts[name], s.yield) {
			s.hosts.Forget(name)
		}
		s.yield()
	}
	for name, what := range s.step.members {
		if s.hosts.Follow(name, what) && what.Has(input.LDS) {
			s.front.Endpoints(s.hosts.Get(name), s.yield)
		}
		s.yield()
	}
	s.track(s.hosts.EndStep(s.yield))
	s.front.Finish(s.yield)
	for _, v := range s.variants {
		s.runVariant(v)
	}
	s.front.Done()
	s.hosts.Done()
	s.planNames()
	s.layer.Commit(in.Sharing, s.yield)
	if len(s.step.hosts) > 0 {
		s.step.hosts = map[string]input.Types{}
	}
	if len(s.step.members) > 0 {
		s.step.members = map[string]input.Types{}
	}
}

// runVariant plans the hosts of the step for a variant.
func (s *scope) runVariant(v *variant) {
	for name, what := range s.step.hosts {
		v.Resolve(name, what)
		s.yield()
	}
	for name, what := range s.step.members {
		v.Follow(name, what)
		s.yield()
	}
	s.front.Variant(v.Variation, false, s.yield)
	v.Layer.Commit(s.in.Sharing, s.yield)
}

// track updates the index with the hosts that a step may have added or removed. Without an index, it adds them to
// step.renewed.
func (s *scope) track(renewed []string) {
	for _, name := range renewed {
		if s.index != nil {
			s.index.set(name, s, s.hosts.Get(name) != nil)
		} else {
			s.step.renewed[name] = true
		}
	}
}

// securesOtherwise reports whether the endpoints that another input has for a host may switch the mTLS of a cluster on
// or off. This is possible only for gRPC clients, which use mTLS for all endpoints of a cluster or for none.
func (s *scope) securesOtherwise(in *input.Input, name string) bool {
	if !s.hosts.Form().Whole {
		return false
	}
	for _, v := range s.variants {
		if v.SecuresOtherwise(in, name) {
			return true
		}
	}
	return s.hosts.SecuresOtherwise(in, name)
}

// yield calls the function that was set by pauses.
func (s *scope) yield() {
	if s.pause != nil {
		s.pause()
	}
}

// pauses sets the function that is called between two pieces of work. nil removes it.
func (s *scope) pauses(f func()) {
	s.pause = f
	s.hosts.Pauses(f)
}

// readsAny reports whether the key of a scope names one of the records with the given keys.
func readsAny(of view.Scope, keys map[model.Key]bool) bool {
	return keys[of.Sidecar] || slices.ContainsFunc(of.Gateways.All(), func(key model.Key) bool { return keys[key] }) ||
		slices.ContainsFunc(of.Filters.All(), func(p view.Patch) bool { return keys[p.Filter] })
}

// apply plans the hosts of this scope that a change affects.
func (s *scope) apply(in *input.Input, d *affected) {
	s.read(in)
	s.followDestinations(d.pulls)
	for h, t := range d.hosts {
		s.step.hosts[h] |= t
	}
	if s.hosts.Form().Whole {
		for h, t := range d.demands {
			s.step.hosts[h] |= t
		}
	}
	for pattern, t := range d.patterns {
		s.cover(pattern, t)
	}
	for h, t := range d.members {
		if s.hosts.Get(h) != nil {
			s.step.members[h] |= t
		}
	}
	for _, h := range s.hosts.OwnedOtherwise(d.addresses) {
		s.step.members[h] |= input.CDS | input.EDS
	}
	again := d.reports(s.key.Namespace)
	if again {
		s.front.TelemetryChanged()
	}
	if again || len(s.step.hosts)+len(s.step.members) > 0 {
		s.run(in)
	}
	s.hosts.Done()
}

// followDestinations updates the imported hosts after edits of VirtualServices. A Sidecar that imports the hosts of a
// VirtualService also imports the destinations of the VirtualService.
func (s *scope) followDestinations(edits []mirror.Edit) {
	changed := func(host string) {
		s.step.hosts[host] |= input.All
		s.in.RoutesTo(host, func(vs *model.VirtualService) {
			s.hosts.RoutedHosts(vs, func(name string) { s.step.hosts[name] |= input.LDS | input.RDS })
		})
		beside := func(vs *model.VirtualService) { // the ports of the VirtualService's virtual hosts may change
			for _, named := range vs.Spec.GetHosts() {
				s.step.hosts[named] |= input.RDS
			}
		}
		for r := range s.in.ByHost(model.KindVirtualService, host) {
			beside(r.(*model.VirtualService))
		}
		for _, vs := range s.in.Routing(host) {
			beside(vs)
		}
	}
	for _, e := range edits {
		if old, ok := e.Old.(*model.VirtualService); ok {
			s.hosts.Pull(old, -1, changed)
		}
		if now, ok := e.New.(*model.VirtualService); ok {
			s.hosts.Pull(now, 1, changed)
		}
	}
}

// cover adds to the step the hosts that a wildcard covers.
func (s *scope) cover(pattern string, t input.Types) {
	s.hosts.Covered(pattern, func(name string) { s.step.hosts[name] |= t })
}

// variantOf returns the variant for the given inputs. If the variant is missing, variantOf plans it. It first plans
// with the given input, with which the last change of the configuration was planned. After that it repeats the later
// steps of the fast path (changes of endpoints), which the parameter since lists.
func (s *scope) variantOf(inputs view.Inputs, in *input.Input, since []plannedStep) *variant {
	v := s.variants[inputs]
	if v != nil {
		return v
	}
	now := s.in
	s.read(in)
	v = &variant{Variation: s.hosts.Vary(inputs, &layer.Layer{})}
	s.front.Variant(v.Variation, true, s.yield)
	for _, f := range since {
		s.read(f.in)
		for name, what := range f.hosts {
			if what &= input.EDS; v.SecuresOtherwise(f.in, name) {
				what |= input.CDS
			}
			v.Follow(name, what)
			s.yield()
		}
	}
	s.read(now)
	s.hosts.Done()
	v.Layer.Commit(in.Sharing, s.yield)
	s.variants[inputs] = v
	return v
}

// forget drops the variant for the given inputs.
func (s *scope) forget(inputs view.Inputs) {
	delete(s.variants, inputs)
	s.front.Forget(inputs)
}
