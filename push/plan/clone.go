package plan

import (
	"slices"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/nametable"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Little can differ between two scopes whose views differ in the namespace alone: hosts of records that stand in one of the two
// namespaces or name it (exportTo, sourceNamespace), and the short names of hosts. Where there is such a scope, it is the template of a
// new one, which is cloned from it: in the clone those records count as edited, and the table of effects says what to plan again, as it
// does for any change. What the two have in common they share.

// scopeFor plans a scope, with what the fast path has planned since.
func (p *Planner) scopeFor(key view.Scope) *scope {
	s := p.scopeLike(p.templateFor(key, p.input), p.input, key, nil)
	for _, u := range p.replayed {
		s.follow(u)
	}
	s.read(p.input)
	return s
}

// templateFor finds a scope, planned with an input, from which another may be cloned; nil: no scope may be.
func (p *Planner) templateFor(key view.Scope, in *input.Input) *scope {
	for _, s := range p.scopes {
		if s.in == in && s.isTemplateFor(key) {
			return s
		}
	}
	return nil
}

// scopeLike plans a scope: as the template has it where there is one, else from scratch; pause is called between two pieces.
func (p *Planner) scopeLike(template *scope, in *input.Input, key view.Scope, pause func()) *scope {
	if template != nil {
		if d := p.between(in, template.key, key); !d.everything {
			return template.clone(in, key, d, pause)
		}
	}
	return newScope(in, key, pause)
}

// isTemplateFor says whether a scope with this key may be cloned from this one. One that imports hosts by name sees few of them, and
// others than those of other namespaces: it is planned from scratch.
func (s *scope) isTemplateFor(key view.Scope) bool {
	other := key
	other.Namespace = s.key.Namespace
	return other == s.key && s.hosts.ImportsEverything()
}

// between is what may differ between two such scopes: what an edit of all records would touch that read either namespace.
func (p *Planner) between(in *input.Input, a, b view.Scope) *dirt {
	c := &change{dirt: newDirt(), in: in, was: in.Root()}
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
	return c.dirt
}

// clone is a copy for another namespace, in which the dirt is planned again.
func (s *scope) clone(in *input.Input, key view.Scope, d *dirt, pause func()) *scope {
	next := s.fork(key)
	next.refs, next.names = 0, nil
	next.pauses(pause)
	next.apply(in, d)
	return next
}

// fork is a copy without variants. From now on neither of the two changes in place what both have.
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
