package plan

import "navarch.io/navarch/push/xds"

// Explain gives the Specs that made a resource of a proxy: its own first, then, of a route configuration, those of its
// virtual hosts in order. The Specs name all the objects that decided it. Nil: the proxy has no such resource.
func (p *Planner) Explain(h *Handle, t xds.Type, name string) []any {
	pl := h.planned.Load()
	ref := xds.Ref{Type: t, Name: name}
	if h.Set().Types[t].Get(name) == nil {
		return nil
	}
	if spec, ok := pl.workload.specs[ref]; ok {
		return []any{spec}
	}
	s := pl.scope
	if spec, ok := s.specs[ref]; ok {
		return []any{spec}
	}
	switch t {
	case xds.Cluster, xds.Endpoint:
		_, _, _, host, _ := xds.ParseCluster(name)
		if at := s.hosts.get(host); at != nil {
			for _, u := range append(units(at.clusters), at.endpoints...) {
				if u.res.Type == t && u.res.Name == name {
					return []any{u.spec}
				}
			}
		}
	case xds.Listener:
		if l := s.listeners.get(name); l != nil && l.res != nil {
			return []any{l.spec}
		}
	case xds.Secret:
		if wd := pl.ward; wd != nil && wd.asked[name] != nil && wd.asked[name].spec != nil {
			return []any{wd.asked[name].spec}
		}
	case xds.Route:
		return s.explainRoute(pl, name)
	}
	return nil
}

func (s *scope) explainRoute(pl *planned, name string) []any {
	rc := s.routes[name]
	if rc == nil || rc.res == nil {
		return nil
	}
	out := []any{rc.spec}
	var facets []string
	if pl.family != nil {
		if own, ok := pl.family.specs[xds.Ref{Type: xds.Route, Name: name}]; ok {
			out[0], facets = own, pl.family.facets.All()
		}
	}
	for _, c := range rc.runs {
		for _, host := range c.hosts {
			var found []Problem
			if spec, ok := s.specOf(rc, rc.entries.get(host), facets, &found); ok {
				out = append(out, spec)
			}
		}
	}
	for _, t := range rc.tail {
		if t.frag != nil {
			out = append(out, t.spec)
		}
	}
	return out
}
