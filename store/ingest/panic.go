package ingest

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// guard recovers from panics during the normalisation of single objects. Such a panic is a bug of Navarch, and would
// end each leader in turn. Therefore the object counts as unreadable: its last good version stays in effect, and a
// policy without one closes its namespace. All other objects are processed.
type guard struct {
	crashes *crash.Log
	fault   func(*object.Object) // a hook that panics in tests; nil: not called
}

func newGuard(crashes *crash.Log) guard {
	if crashes == nil {
		crashes = crash.New(nil)
	}
	return guard{crashes: crashes}
}

// run calls f, which reads one object. If f panics, the panic is logged, and run returns it as a problem of the object.
// Otherwise run returns nil.
func (g *guard) run(o *object.Object, f func()) (problems []object.Problem) {
	defer func() {
		if fault := recover(); fault != nil {
			err := g.crashes.Caught(crash.Normalise, fault, obs.KeyObject, o.ID.String())
			problems = []object.Problem{{ID: o.ID, Location: o.Location, Code: problem.Internal, Severity: problem.Error,
				Message: "internal error: the object cannot be read; its last good version stays in effect: " + err.Error()}}
		}
	}()
	if g.fault != nil {
		g.fault(o)
	}
	f()
	return nil
}

// putGuarded calls put. If put panics, the object is stored and marked as spoiled (unusable).
func (w *inventory) putGuarded(o *object.Object) {
	if problems := w.guard.run(o, func() { w.put(o) }); problems != nil {
		n := w.objects.Put(o)
		n.Entry.spoiled = true
		w.closeUnread(o.ID, o.Location, n)
		w.faults.Set(o.ID, problems)
	}
}

// result normalises an object. After a panic the result is marked as spoiled (unusable), and keeps the previous lookups
// of the object.
func (w *inventory) result(n *node) (r normal.Result) {
	o := n.Object()
	if ahead := w.ahead[n]; ahead != nil {
		return *ahead
	}
	if problems := w.guard.run(o, func() { r = w.normal.Object(o, w.objects) }); problems != nil {
		unread := &object.Object{ID: o.ID, Location: o.Location} // its content is not read again
		r = normal.Result{Spoiled: true, Problems: problems, Refs: n.Refs(), UsesMesh: n.UsesMesh(),
			Closed: w.normal.Closed(unread, w.objects.Mesh().GetRootNamespace())}
	}
	return r
}
