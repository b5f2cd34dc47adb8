package ingest

import (
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// One cluster may have two sources: a folder of files and the API server. If both sources have an object of the same
// kind, namespace and name, the object of the API server applies (origin.Before), and the object of the folder is
// reported. Policies of both sources apply: without one of them, requests could be permitted that the policy refuses.
// Likewise, an object of a file takes precedence over one that was made from a machine's registration.

// other returns the object of the same name in the preceding source of the cluster. For an object of the API server,
// which is the first source, it returns the object in the following source. The result is nil if there is no such
// object. The order of sources is: API server, files, machines.
func (w *inventory) other(id object.ID) *node {
	from, is := id.Origin.Before()
	if !is {
		if from, is = id.Origin.After(); !is {
			return nil
		}
	}
	id.Origin = from
	return w.objects.Get(id)
}

// markOther marks the objects that the addition or removal of the object id affects. It marks id itself if the
// preceding source has an object of the same name. It also marks the object of the same name in the following source.
func (w *inventory) markOther(id object.ID) {
	if w.before(id) != nil {
		w.objects.Mark(id)
	}
	if from, is := id.Origin.After(); is {
		after := id
		if after.Origin = from; w.objects.Get(after) != nil {
			w.objects.Mark(after)
		}
	}
}

// before returns the object of the same name in the preceding source, or nil. The returned object takes precedence over
// id.
func (w *inventory) before(id object.ID) *node {
	from, is := id.Origin.Before()
	if !is {
		return nil
	}
	id.Origin = from
	return w.objects.Get(id)
}

// yields reports whether an object of the preceding source applies instead of n. If so, it removes the records of n,
// its looked-up names, and its offer to the tenant's budget. It also reports n as a duplicate. Policies never yield.
func (w *inventory) yields(n *node) bool {
	id := n.ID()
	before := w.before(id)
	if before == nil || normal.IsPolicy(id) {
		return false
	}
	if w.budgets != nil {
		w.withdraw(n)
	}
	n.Entry.spoiled, n.Entry.closed = false, false
	w.objects.SetRefs(n, nil, false)
	w.setRecords(n, nil, nil)
	place := "Kubernetes"
	if before.ID().Origin.Source() == origin.Files {
		place = "a file"
	}
	w.faults.Set(id, []object.Problem{{ID: id, Location: w.location(id), Code: problem.Duplicate, Severity: problem.Warning,
		Message: "an object of this name in " + place + " takes precedence; this object applies once the other is removed"}})
	return true
}

// forget removes all objects of one origin.
func (w *inventory) forget(from origin.Origin) {
	for id := range w.objects.All() {
		if id.Origin == from {
			gone := object.Event{Op: object.Delete, ID: id}
			w.noteTenant(gone)
			w.remove(gone)
		}
	}
}
