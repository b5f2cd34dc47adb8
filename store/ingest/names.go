package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Names that records refer to and that the leader resolves beside the sources (normal.ResolvedID). Owned by inventory.
type nameCounts struct {
	of      map[string]int // how many refer to each
	changed bool           // others are referred to than when Loop said so last
}

// count follows a reference that comes, or goes.
func (n *nameCounts) count(ref object.ID, by int) {
	if ref.Origin.Source() != origin.DNS {
		return
	}
	was := n.of[ref.Name]
	if n.of[ref.Name] += by; n.of[ref.Name] == 0 {
		delete(n.of, ref.Name)
	}
	n.changed = n.changed || (was == 0) != (was+by == 0)
}

// putOwn takes what the leader says itself, which has no problems.
func (w *inventory) putOwn(e *entry, touched map[object.ID]bool) {
	e.spoiled = false
	switch id := e.object.ID; id.Origin.Source() {
	case origin.Addresses:
		w.automatic[id] = normal.ParseAutomatic(e.object)
		w.touch(id, touched)
	case origin.DNS:
		w.resolved[id] = normal.ParseResolved(e.object)
		w.touchName(id, touched)
	}
}

// own says whether an object is one that the leader says itself.
func own(id object.ID) bool {
	return id.Origin.Source() == origin.Addresses || id.Origin.Source() == origin.DNS
}

// Automatic implements normal.Lookup.
func (w *inventory) Automatic(id object.ID) map[string][]string { return w.automatic[id] }

// Resolved implements normal.Lookup.
func (w *inventory) Resolved(id object.ID) []string { return w.resolved[id] }

// touchName has those made again that depend on an object, the mesh's networks among them.
func (w *inventory) touchName(of object.ID, touched map[object.ID]bool) {
	if w.touch(of, touched); of.Origin.Source() != origin.DNS {
		return
	}
	if e := w.objects[w.meshID]; touched[w.meshID] && e != nil && e.object != nil {
		delete(touched, w.meshID)
		w.putMesh(e, touched)
	}
}

// whole says whether all sources of configuration have told everything: what is not told yet is the leader's own to say.
func (s *State) whole() bool {
	for o := range s.unsynced {
		if o.Source() != origin.Addresses && o.Source() != origin.DNS {
			return false
		}
	}
	return true
}

// name says which names are referred to, where that has changed.
func (l *Loop) name() {
	whole := l.state.whole()
	if l.Named == nil || !l.state.names.changed && whole == l.whole {
		return
	}
	l.whole, l.state.names.changed = whole, false
	l.Named(slices.Sorted(maps.Keys(l.state.names.of)), whole)
}
