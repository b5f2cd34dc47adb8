package ingest

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// A panic over one object is an error in Navarch, and would end each leader in turn (issue 12, item 11): the object counts as one that cannot
// be understood. Its last good version stands, a policy that has none closes its namespace, and all else goes on.

// guarded runs f, which reads one object; a panic is a problem of the object.
func (w *inventory) guarded(o *object.Object, f func()) (problems []object.Problem) {
	defer func() {
		if fault := recover(); fault != nil {
			err := w.crashes.Caught(crash.Normalise, fault, obs.KeyObject, o.ID.String())
			problems = []object.Problem{{ID: o.ID, Location: o.Location, Code: problem.Internal, Severity: problem.Error,
				Message: "a fault of this build: it cannot be read, and what was good before stands: " + err.Error()}}
		}
	}()
	if w.fault != nil {
		w.fault(o)
	}
	f()
	return nil
}

// putGuarded is put, after which an object that panics is spoiled.
func (w *inventory) putGuarded(o *object.Object, touched map[object.ID]bool) {
	if problems := w.guarded(o, func() { w.put(o, touched) }); problems != nil {
		e := w.entryOf(o.ID)
		e.setObject(o)
		e.spoiled = true
		w.closeUnread(o.ID, o.Location, e)
		w.setProblems(o.ID, e, problems)
	}
}

// result is what an object's records should be.
func (w *inventory) result(e *entry) (r normal.Result) {
	if problems := w.guarded(e.object, func() { r = w.normal.Object(e.object, w) }); problems != nil {
		unread := &object.Object{ID: e.object.ID, Location: e.object.Location} // without its content, which is not read again
		var refs []object.ID
		for _, of := range e.refs {
			refs = append(refs, of.id())
		}
		r = normal.Result{Spoiled: true, Problems: problems, Refs: refs, UsesMesh: e.mesh, Closed: w.normal.Closed(unread, w.mesh.GetRootNamespace())}
	}
	return r
}
