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

// scope is the outbound side of all proxies that see the same: a host table, the front that turns it into listeners and route
// configurations, and the variants of both for proxies whose labels some rule reads.
type scope struct {
	in       *input.Input
	layer    *layer.Layer // what the host table and the front have planned
	key      view.Scope
	sidecar  *model.Sidecar // nil: none applies
	hosts    *host.Table
	front    front.Front
	variants map[view.Inputs]*variant
	names    map[string]*nametable.Table // by network; none that no proxy asks for
	problems []input.Problem             // of the scope itself
	step     step
	index    hostIndex // nil while the scope is planned from scratch, and of a shadow copy
	refs     int
	pause    func() // called between two pieces of a step, where others may have their turn; nil: they have none
}

// step is the hosts that are to be planned again in one step, and the types of resources in each.
type step struct {
	hosts   map[string]input.Types
	members map[string]input.Types // for their endpoints alone
	renewed map[string]bool        // may have come or gone since the scope was forked
}

func newStep() step {
	return step{hosts: map[string]input.Types{}, members: map[string]input.Types{}, renewed: map[string]bool{}}
}

// variant is what proxies with certain inputs have in place of what their scope has.
type variant struct {
	*host.Variation
	refs int
}

// newScope plans a scope from scratch; pause is called between two pieces.
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

// read has the scope plan with another input from now on.
func (s *scope) read(in *input.Input) {
	s.in = in
	s.hosts.Read(in)
	s.front.Read(in)
}

// run plans what the step names, with everything that follows from it, and commits.
func (s *scope) run(in *input.Input) {
	s.read(in)
	in.Tested(s.key)
	names := slices.Sorted(maps.Keys(s.step.hosts))
	for _, name := range names {
		s.hosts.Resolve(name, s.step.hosts[name])
		s.rest()
	}
	for _, name := range names { // all hosts of the step are resolved
		if !s.front.Host(name, s.step.hosts[name], s.rest) {
			s.hosts.Forget(name)
		}
		s.rest()
	}
	for name, what := range s.step.members {
		if s.hosts.Follow(name, what) && what.Has(input.LDS) {
			s.front.Endpoints(s.hosts.Get(name), s.rest)
		}
		s.rest()
	}
	s.track(s.hosts.EndStep(s.rest))
	s.front.Finish(s.rest)
	for _, v := range s.variants {
		s.runVariant(v)
	}
	s.front.Done()
	s.hosts.Done()
	s.planNames()
	s.layer.Commit(in.Sharing, s.rest)
	if len(s.step.hosts) > 0 {
		s.step.hosts = map[string]input.Types{}
	}
	if len(s.step.members) > 0 {
		s.step.members = map[string]input.Types{}
	}
}

// runVariant plans what the step names for a variant.
func (s *scope) runVariant(v *variant) {
	for name, what := range s.step.hosts {
		v.Resolve(name, what)
	}
	for name, what := range s.step.members {
		v.Follow(name, what)
	}
	s.front.Variant(v.Variation, false, s.rest)
	v.Layer.Commit(s.in.Sharing, s.rest)
}

// track follows the hosts that a step may have brought or taken.
func (s *scope) track(renewed []string) {
	for _, name := range renewed {
		if s.index != nil {
			s.index.set(name, s, s.hosts.Get(name) != nil)
		} else {
			s.step.renewed[name] = true
		}
	}
}

// securesOtherwise says whether the endpoints of a host, as another input has them, change how clusters that speak mTLS to all of them or
// to none are spoken to.
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

// rest lets others have their turn.
func (s *scope) rest() {
	if s.pause != nil {
		s.pause()
	}
}

// pauses has f called between two pieces of whatever is planned; nil: nothing is.
func (s *scope) pauses(f func()) {
	s.pause = f
	s.hosts.Pauses(f)
}

// readsAny says whether a scope names one of the records.
func readsAny(of view.Scope, keys map[model.Key]bool) bool {
	return keys[of.Sidecar] || slices.ContainsFunc(of.Gateways.All(), func(key model.Key) bool { return keys[key] }) ||
		slices.ContainsFunc(of.Filters.All(), func(p view.Patch) bool { return keys[p.Filter] })
}

// apply plans again what a change touches here.
func (s *scope) apply(in *input.Input, d *dirt) {
	s.read(in)
	s.pull(d.pulls)
	for h, t := range d.hosts {
		s.step.hosts[h] |= t
	}
	for pattern, t := range d.patterns {
		s.cover(pattern, t)
	}
	for h, t := range d.members {
		if s.hosts.Get(h) != nil {
			s.step.members[h] |= t
		}
	}
	again := d.reports(s.key.Namespace)
	if again {
		s.front.Report()
	}
	if again || len(s.step.hosts)+len(s.step.members) > 0 {
		s.run(in)
	}
	s.hosts.Done()
}

// pull follows the destinations of VirtualServices, which are seen where a Sidecar imports the VirtualServices' hosts.
func (s *scope) pull(edits []mirror.Edit) {
	changed := func(host string) {
		s.step.hosts[host] |= input.All
		s.in.RoutesTo(host, func(vs *model.VirtualService) {
			s.hosts.Decided(vs, func(name string) { s.step.hosts[name] |= input.LDS | input.RDS })
		})
		beside := func(vs *model.VirtualService) { // at which ports it makes its hosts known
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

// cover marks the hosts that a wildcard covers.
func (s *scope) cover(pattern string, t input.Types) {
	s.hosts.Covered(pattern, func(name string) { s.step.hosts[name] |= t })
}

// variantOf finds or plans the variant for proxies with these inputs: with the input of the last plan of configuration, and then with
// what the fast path has planned since.
func (s *scope) variantOf(inputs view.Inputs, in *input.Input, since []played) *variant {
	v := s.variants[inputs]
	if v != nil {
		return v
	}
	now := s.in
	s.read(in)
	v = &variant{Variation: s.hosts.Vary(inputs, &layer.Layer{})}
	s.front.Variant(v.Variation, true, s.rest)
	for _, f := range since {
		s.read(f.in)
		for name, what := range f.hosts {
			if what &= input.EDS; v.SecuresOtherwise(f.in, name) {
				what |= input.CDS
			}
			v.Follow(name, what)
			s.rest()
		}
	}
	s.read(now)
	s.hosts.Done()
	v.Layer.Commit(in.Sharing, s.rest)
	s.variants[inputs] = v
	return v
}

// forget drops what only proxies with these inputs had.
func (s *scope) forget(inputs view.Inputs) {
	delete(s.variants, inputs)
	s.front.Forget(inputs)
}
