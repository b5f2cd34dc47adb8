package plan

import (
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A scope is the outbound configuration of a group of proxies. Two scopes whose keys differ only in the namespace have
// few differences. They differ in the hosts of records that belong to one of the two namespaces, or name one of them
// (exportTo, sourceNamespace). They also differ in the short names of hosts. So a new scope is cloned from an existing
// scope, its template. In the clone all these records count as edited. The table of effects lists the parts of the
// clone (units) to plan again. Clone and template share everything else.

// scopeFor plans a scope, including the steps that the fast path has planned since the planner's input was read.
func (p *Planner) scopeFor(key view.Scope) *scope {
	s := p.scopeLike(p.templateFor(key, p.input), p.input, key, nil)
	for _, u := range p.fastSteps {
		s.follow(u)
	}
	s.read(p.input)
	return s
}

// templateFor returns a template for a scope with a key, or nil. The template is planned with the given input.
func (p *Planner) templateFor(key view.Scope, in *input.Input) *scope {
	for _, s := range p.scopes {
		if s.in == in && s.isTemplateFor(key) {
			return s
		}
	}
	return nil
}

// scopeLike plans a scope as a clone of the template. Without a template, or if everything differs, it plans from
// scratch. It calls pause, which may be nil, between two pieces of work.
func (p *Planner) scopeLike(template *scope, in *input.Input, key view.Scope, pause func()) *scope {
	if template != nil {
		if d := p.between(in, template.key, key); !d.everything {
			return template.clone(in, key, d, pause)
		}
	}
	return newScope(in, key, pause)
}

// isTemplateFor reports whether a scope with a key may be cloned from s. A scope that imports hosts by name is
// planned from scratch, because it has few hosts, and scopes of different namespaces import different hosts.
func (s *scope) isTemplateFor(key view.Scope) bool {
	other := key
	other.Namespace = s.key.Namespace
	return other == s.key && s.hosts.ImportsEverything()
}

// between returns the units that may differ between the scope with the key a and its clone with the key b. It collects
// the effects of an edit of every service, VirtualService and DestinationRule of the two namespaces, and of every
// record that names one of them.
func (p *Planner) between(in *input.Input, a, b view.Scope) *affected {
	c := &change{affected: newAffected(), in: in, was: in.Root()}
	defaults := in.Mesh.Spec
	for _, namespace := range []string{a.Namespace, b.Namespace} {
		for _, list := range [][]string{defaults.GetDefaultVirtualServiceExportTo(), defaults.GetDefaultDestinationRuleExportTo()} {
			c.everything = c.everything || slices.Contains(list, namespace)
		}
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry, model.KindVirtualService, model.KindDestinationRule} {
			for r := range in.In(kind, namespace) {
				c.collect(p.table, []mirror.Edit{{Old: r, New: r}})
			}
		}
		for _, list := range []string{namespace, input.AnyNamespace} {
			for key := range in.Index.Naming(list) {
				if r, ok := in.Get(key); ok {
					c.collect(p.table, []mirror.Edit{{Old: r, New: r}})
				}
			}
		}
		c.patterns["*."+namespace+"."+a.Domain] |= input.RDS // the short names of hosts
	}
	c.reporting[b.Namespace] = true
	return c.affected
}

// clone returns a copy for another namespace, with the affected units planned again.
func (s *scope) clone(in *input.Input, key view.Scope, d *affected, pause func()) *scope {
	next := s.fork(key)
	next.refs, next.names = 0, nil
	next.pauses(pause)
	next.apply(in, d)
	return next
}

// fork returns a copy without variants. After fork, neither scope changes shared values in place.
func (s *scope) fork(key view.Scope) *scope {
	next := *s
	next.key, next.index, next.step = key, nil, newStep()
	next.layer = s.layer.Fork()
	next.front, next.hosts = s.front.Fork(key, next.layer)
	next.variants = map[view.Inputs]*variant{}
	next.pauses(nil)
	next.names = make(map[string]*nametable.Table, len(s.names))
	for network, t := range s.names {
		next.names[network] = t.Fork()
	}
	return &next
}
