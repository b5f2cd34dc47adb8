package ingest

import (
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Two sources may read one cluster: a folder of files and its API server. Of two objects of the same kind, namespace and name the API
// server's stands (origin.Before), and a problem names the other one; policies of both apply, since leaving one out would open what it
// closes. An object that was made of a machine's registration yields to one of a file in the same way.

// other is the object of the same name that the other source emitted, or nil.
func (w *inventory) other(id object.ID) (object.ID, *entry) {
	from, is := id.Origin.Before()
	if !is {
		if from, is = id.Origin.After(); !is {
			return object.ID{}, nil
		}
	}
	id.Origin = from
	return id, w.objects[id]
}

// touchOther has the object of the other source with this name normalised again, since this one has come or gone.
func (w *inventory) touchOther(id object.ID, touched map[object.ID]bool) {
	if from, is := id.Origin.Before(); is {
		before := id
		if before.Origin = from; w.objects[before] != nil {
			touched[id] = true
		}
	}
	if from, is := id.Origin.After(); is {
		after := id
		if after.Origin = from; w.objects[after] != nil {
			touched[after] = true
		}
	}
}

// yields says whether the other source's object stands in place of this one, which then has no records.
func (w *inventory) yields(id object.ID, e *entry) bool {
	from, is := id.Origin.Before()
	if !is || normal.IsPolicy(id) {
		return false
	}
	before := id
	before.Origin = from
	if w.objects[before] == nil {
		return false
	}
	if w.ledger != nil {
		w.withdraw(id, e)
	}
	e.mesh, e.spoiled, e.closed = false, false, false
	w.setRefs(e, nil)
	w.setRecords(e, nil, nil)
	location, place := "", "Kubernetes"
	if from.Source() == origin.Files {
		place = "a file"
	}
	if e.object != nil {
		location = e.object.Location
	}
	w.setProblems(id, e, []object.Problem{{ID: id, Location: location, Code: problem.Duplicate, Severity: problem.Warning,
		Message: "is in " + place + " too, which wins; this one applies when that one goes"}})
	return true
}

// forget takes away everything that came from one source.
func (w *inventory) forget(from origin.Origin, touched map[object.ID]bool) {
	for id := range w.objects {
		if id.Origin == from {
			gone := object.Event{Op: object.Delete, ID: id}
			w.noteTenant(gone)
			w.remove(gone, touched)
		}
	}
}
