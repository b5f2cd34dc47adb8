package plan

import (
	"maps"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Scopes whose views differ in the namespace alone are siblings. Little can differ between two of them: hosts of records
// that stand in one of the two namespaces or name it (exportTo, sourceNamespace), and the short names of hosts. A scope
// that has a sibling is born as its copy, in which those records count as edited: the table of effects says what to plan
// again, as it does for any change. What the two have in common they share.

// owner is the identity under which a scope may change a part of itself in place.
type owner struct{ _ byte }

// scopeFor plans a scope, with what was flipped since the world.
func (p *Planner) scopeFor(key view.Scope) *scope {
	s := p.cloneOrPlan(key)
	for _, f := range p.replayed {
		s.planFastStep(f)
	}
	s.input = p.input
	return s
}

// cloneOrPlan plans a scope: as a sibling has it where there is one, else from nothing.
func (p *Planner) cloneOrPlan(key view.Scope) *scope {
	for _, s := range p.scopes {
		if s.input == p.input && s.isTemplateFor(key) {
			if d := p.between(s.key, key); !d.everything {
				return s.clone(p.input, key, d)
			}
		}
	}
	return newScope(p.input, key)
}

// isTemplateFor says whether the scope is a sibling of one with this key. One that imports hosts by name sees few of them, and
// others than its siblings: it is planned from nothing.
func (s *scope) isTemplateFor(key view.Scope) bool {
	other := key
	other.Namespace = s.key.Namespace
	return other == s.key && !slices.ContainsFunc(s.egress, func(e *egress) bool { return !e.everything() })
}

// between is what may differ between two siblings: what an edit of all records would touch that read either namespace.
func (p *Planner) between(a, b view.Scope) *dirt {
	c := &change{dirt: newDirt(), input: p.input, was: p.input.root()}
	defaults := p.input.mesh.Spec
	for _, namespace := range []string{a.Namespace, b.Namespace} {
		for _, list := range [][]string{defaults.GetDefaultVirtualServiceExportTo(), defaults.GetDefaultDestinationRuleExportTo()} {
			c.everything = c.everything || slices.Contains(list, namespace)
		}
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService, model.KindDestinationRule} {
			for r := range p.input.In(kind, namespace) {
				c.collect(p.table, []mirror.Edit{{Old: r, New: r}})
			}
		}
		for _, list := range []string{namespace, anyNamespace} {
			for key := range p.input.index.naming[list] {
				if r, ok := p.input.Get(key); ok {
					c.collect(p.table, []mirror.Edit{{Old: r, New: r}})
				}
			}
		}
		c.patterns["*."+namespace+"."+a.Domain] |= rds // short names, see shortNames
	}
	return c.dirt
}

// anyNamespace stands for all namespaces in the index of records that name one.
const anyNamespace = ""

// namespacesOf are the namespaces, beside its own, for whose proxies a record may mean something else than for others.
func namespacesOf(r model.Record) []string {
	var out []string
	switch t := r.(type) {
	case *model.Service:
		out = t.Spec.GetExportTo()
	case *model.DestinationRule:
		out = t.Spec.GetExportTo()
	case *model.VirtualService:
		if out = t.Spec.GetExportTo(); readsNamespace(t) {
			out = append(slices.Clone(out), anyNamespace)
		}
	}
	return slices.DeleteFunc(slices.Clone(out), func(e string) bool { return e == "*" || e == "." || e == "~" })
}

// readsNamespace says whether any match of a VirtualService has a sourceNamespace.
func readsNamespace(vs *model.VirtualService) bool {
	for _, r := range vs.Spec.GetHttp() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.HTTPMatchRequest) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	for _, r := range vs.Spec.GetTcp() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.L4MatchAttributes) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	for _, r := range vs.Spec.GetTls() {
		if slices.ContainsFunc(r.GetMatch(), func(m *networkingv1.TLSMatchAttributes) bool { return m.GetSourceNamespace() != "" }) {
			return true
		}
	}
	return false
}

// clone plans a sibling: a copy, in which the dirt is planned again.
func (s *scope) clone(w *input, key view.Scope, d *dirt) *scope {
	next := s.fork()
	next.key, next.refs = key, 0
	next.egress, _ = compileEgress(s.sidecar, key)
	next.apply(w, d)
	return next
}

// fork is a copy without families. From now on neither of the two changes in place what both have.
func (s *scope) fork() *scope {
	s.own = &owner{}
	next := *s
	next.own, next.seen, next.step = &owner{}, nil, newStep()
	next.hosts, next.listeners, next.routes = s.hosts.fork(), s.listeners.fork(), maps.Clone(s.routes)
	next.variants, next.problems = map[intern.List[string]]*variant{}, maps.Clone(s.problems)
	return &next
}
