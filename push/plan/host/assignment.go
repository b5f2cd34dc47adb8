package host

import (
	"slices"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
)

// planEndpoints plans the assignments of a host's clusters. The service and its rules stay as they were last planned.
func (t *Table) planEndpoints(h *Host) {
	old := h.endpoints
	h.endpoints = make([]layer.Unit, 0, len(old))
	var found []input.Problem
	for _, c := range h.clusters {
		if !c.assigned() {
			continue
		}
		spec := endpoint.Spec{Cluster: c.Res.Name, Members: t.in.Members(c.selection, c.labels)}
		spec.Plain = input.Plain(c.selection, spec.Members.All())
		if i := slices.IndexFunc(old, func(u layer.Unit) bool { return u.Spec == spec }); i >= 0 {
			h.endpoints = append(h.endpoints, old[i])
		} else if u, ok := t.in.Make(spec, h.Service.Key, &found); ok {
			h.endpoints = append(h.endpoints, u)
		}
	}
	t.problems.Set("endpoints "+h.Name, found)
	t.layer.Replace(old, h.endpoints)
}
