package ingest

import (
	"maps"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Objects that records refer to and that the leader says itself beside the sources, by finding something out: addresses of names
// (normal.ResolvedID), keys at URIs (normal.KeysID). Owned by inventory.
type nameCounts struct {
	of      map[object.ID]int // how many refer to each
	changed bool              // the names differ from those that Loop reported last
}

// count follows a reference that comes, or goes.
func (n *nameCounts) count(ref object.ID, by int) {
	was := n.of[ref]
	if n.of[ref] += by; n.of[ref] == 0 {
		delete(n.of, ref)
	}
	n.changed = n.changed || (was == 0) != (was+by == 0)
}

// countName follows a reference of either kind.
func (w *inventory) countName(ref object.ID, by int) {
	switch ref.Origin.Source() {
	case origin.DNS:
		w.names.count(ref, by)
	case origin.JWKS:
		w.keySets.count(ref, by)
	}
}

// putOwn takes what the leader says itself, which has no problems.
func (w *inventory) putOwn(e *entry, touched map[object.ID]bool) {
	e.spoiled = false
	switch id := e.object.ID; id.Origin.Source() {
	case origin.Addresses:
		w.setAutomatic(id, normal.ParseAutomatic(e.object), touched)
	case origin.DNS:
		w.resolved[id] = normal.ParseResolved(e.object)
		w.touchName(id, touched)
	case origin.JWKS:
		w.keys[id] = normal.ParseKeys(e.object)
		w.touch(id, touched)
	}
}

// own says whether an object is one that the leader says itself.
func own(id object.ID) bool {
	source := id.Origin.Source()
	return source == origin.Addresses || source == origin.DNS || source == origin.JWKS
}

// Automatic implements normal.Lookup.
func (w *inventory) Automatic(id object.ID) map[string][]string { return w.automatic[id] }

// AutomaticAt implements normal.Lookup.
func (w *inventory) AutomaticAt(id object.ID) object.ID { return w.automaticAt[id] }

// setAutomatic takes over which automatic addresses the hosts of a ServiceEntry have; nil: none. It is made again, and whoever states one of these
// addresses.
func (w *inventory) setAutomatic(id object.ID, hosts map[string][]string, touched map[object.ID]bool) {
	each := func(hosts map[string][]string, do func(at object.ID)) {
		for _, addresses := range hosts {
			for _, text := range addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					at := normal.AutomaticAtID(a)
					do(at)
					w.touch(at, touched)
				}
			}
		}
	}
	each(w.automatic[id], func(at object.ID) {
		if w.automaticAt[at] == id { // else another has been given it since
			delete(w.automaticAt, at)
		}
	})
	each(hosts, func(at object.ID) { w.automaticAt[at] = id })
	if w.automatic[id] = hosts; hosts == nil {
		delete(w.automatic, id)
	}
	w.touch(id, touched)
}

// Resolved implements normal.Lookup.
func (w *inventory) Resolved(id object.ID) []string { return w.resolved[id] }

// Keys implements normal.Lookup.
func (w *inventory) Keys(id object.ID) normal.Keys { return w.keys[id] }

// touchName has the records made again that depend on an object, those of the mesh's networks too.
func (w *inventory) touchName(of object.ID, touched map[object.ID]bool) {
	if w.touch(of, touched); of.Origin.Source() != origin.DNS {
		return
	}
	if e := w.objects[w.meshID]; touched[w.meshID] && e != nil && e.object != nil {
		delete(touched, w.meshID)
		w.putMesh(e, touched)
	}
}

// whole says whether all sources of configuration have emitted everything: what is not emitted yet is the leader's own to say.
func (s *State) whole() bool {
	for o := range s.unsynced {
		if !own(object.ID{Origin: o}) {
			return false
		}
	}
	return true
}

// name says which names and which keys are referred to, where that has changed.
func (l *Loop) name() {
	whole := l.state.whole()
	also := whole != l.whole
	l.whole = whole
	if names := &l.state.names; l.Named != nil && (names.changed || also) {
		names.changed = false
		var all []string
		for id := range names.of {
			all = append(all, id.Name)
		}
		slices.Sort(all)
		l.callbacks.Call(func() { l.Named(all, whole) })
	}
	if sets := &l.state.keySets; l.KeySets != nil && (sets.changed || also) {
		sets.changed = false
		l.callbacks.Call(func() { l.KeySets(slices.SortedFunc(maps.Keys(sets.of), object.ID.Compare), whole) })
	}
}
