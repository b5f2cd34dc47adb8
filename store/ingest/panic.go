package ingest

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// guard catches panics over single objects. Such a panic is a fault of Navarch, and would end each leader in turn. So
// the object counts as one that cannot be understood: its last good version stays in effect, a policy without one
// closes its namespace, and all other objects go on.
type guard struct {
	crashes *crash.Log
	fault   func(*object.Object) // tests make it panic; nil: not called
}

func newGuard(crashes *crash.Log) guard {
	if crashes == nil {
		crashes = crash.New(nil)
	}
	return guard{crashes: crashes}
}

// run calls f, which reads one object. A panic of f becomes a problem of the object.
func (g *guard) run(o *object.Object, f func()) (problems []object.Problem) {
	defer func() {
		if fault := recover(); fault != nil {
			err := g.crashes.Caught(crash.Normalise, fault, obs.KeyObject, o.ID.String())
			problems = []object.Problem{{ID: o.ID, Location: o.Location, Code: problem.Internal, Severity: problem.Error,
				Message: "a fault of this build: it cannot be read, and what was good before stands: " + err.Error()}}
		}
	}()
	if g.fault != nil {
		g.fault(o)
	}
	f()
	return nil
}

// putGuarded calls put. An object that makes it panic is spoiled.
func (w *inventory) putGuarded(o *object.Object) {
	if problems := w.guard.run(o, func() { w.put(o) }); problems != nil {
		n := w.objects.Put(o)
		n.Entry.spoiled = true
		w.closeUnread(o.ID, o.Location, n)
		w.faults.Set(o.ID, problems)
	}
}

// result normalises an object. One that makes normal panic keeps what it looked up before.
func (w *inventory) result(n *node) (r normal.Result) {
	o := n.Object()
	if problems := w.guard.run(o, func() { r = w.normal.Object(o, w.objects) }); problems != nil {
		unread := &object.Object{ID: o.ID, Location: o.Location} // without its content, which is not read again
		r = normal.Result{Spoiled: true, Problems: problems, Refs: n.Refs(), UsesMesh: n.UsesMesh(),
			Closed: w.normal.Closed(unread, w.objects.Mesh().GetRootNamespace())}
	}
	return r
}
