package ingest

import (
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Two sources may read one cluster: a folder of files and its API server. Of two objects of the same kind, namespace
// and name the API server's object applies (origin.Before), and a problem names the other one. Policies of both apply,
// since leaving one out would open what it closes. An object that was made of a machine's registration yields to one of
// a file in the same way.

// other returns the object of the same name that the other source emitted, or nil.
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

// markOther marks the object of this name that yields to another one, since this one has come or gone.
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

// before returns the object of the same name that this one yields to, or nil.
func (w *inventory) before(id object.ID) *node {
	from, is := id.Origin.Before()
	if !is {
		return nil
	}
	id.Origin = from
	return w.objects.Get(id)
}

// yields reports whether the other source's object applies in place of this one, which then has no records.
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
		Message: "is in " + place + " too, which wins; this one applies when that one goes"}})
	return true
}

// forget removes everything that came from one source.
func (w *inventory) forget(from origin.Origin) {
	for id := range w.objects.All() {
		if id.Origin == from {
			gone := object.Event{Op: object.Delete, ID: id}
			w.noteTenant(gone)
			w.remove(gone)
		}
	}
}
