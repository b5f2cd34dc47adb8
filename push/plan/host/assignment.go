package host

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
)

// assignment is the Spec (the inputs) of a ClusterLoadAssignment for any kind of proxy. The method Decision returns the
// Spec that an Envoy would get.
type assignment interface{ Decision() endpoint.Spec }

// planEndpoints plans the assignments of the clusters of h (Form.Assignment), with the present service and rules of h.
func (t *Table) planEndpoints(h *Host) {
	old := h.endpoints
	var found []input.Problem
	h.endpoints = t.assignmentsOf(h, view.Inputs{}, old, &found)
	t.problems.Set("endpoints "+h.Name, found)
	t.layer.Replace(old, h.endpoints)
}

// assignmentsOf plans the assignments of a host's clusters for proxies with the given inputs. An old unit with an equal
// Spec is reused without a search in the pool. Problems are appended to found.
func (t *Table) assignmentsOf(h *Host, inputs view.Inputs, old []layer.Unit, found *[]input.Problem) []layer.Unit {
	out, known := make([]layer.Unit, 0, len(h.clusters)), finder{units: old}
	for _, c := range h.clusters {
		if !c.assigned() {
			continue
		}
		if c.selection.OnNode {
			c.selection.Node = inputs.Node
		}
		spec := endpoint.Spec{Cluster: c.Res.Name, Members: t.members(c.selection, c.labels, found)}
		spec.Balance = t.balance(c.setting, inputs, spec.Members)
		if c.bySNI {
			spec.Members = passable(spec.Members, inputs)
		} else {
			spec.Horizon = t.horizon(spec.Members, c.tls, inputs)
			spec.Plain, spec.AllPlain = t.plain(&c, spec.Members)
		}
		if u, is := known.find(spec.Cluster); is && u.Spec.(assignment).Decision() == spec {
			out = append(out, u)
		} else if u, ok := t.in.MakeInPieces(t.form.Assignment(spec), t.yield, h.Service.Key, found); ok {
			out = append(out, u)
			t.yield()
		}
	}
	return out
}

// finder finds units by the names of their resources. It is fast for names in the order of the units.
type finder struct {
	units []layer.Unit
	next  int // index of the unit that is expected next
	names map[string]layer.Unit
}

// find returns the unit with a name.
func (f *finder) find(name string) (layer.Unit, bool) {
	if f.next < len(f.units) && f.units[f.next].Res.Name == name {
		f.next++
		return f.units[f.next-1], true
	}
	if f.names == nil {
		f.names = layer.ByName(f.units)
	}
	u, is := f.names[name]
	return u, is
}
