package lookup

import (
	"iter"
	"maps"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
)

// SetRefs stores the names that an object looked up when it was normalised. They replace the names of the previous
// call. Later changes of the objects with these names mark the object. The argument usesMesh states whether the
// object's records depend on the mesh configuration. SetRefs does not retain refs.
func (t *Table[E]) SetRefs(n *Node[E], refs []object.ID, usesMesh bool) {
	n.usesMesh = usesMesh
	if n.looksUp(refs) {
		return
	}
	before := n.refs
	n.refs = nil
	if len(refs) > 0 {
		n.refs = make([]*Node[E], len(refs))
	}
	for i, id := range refs { // before dropReader, so that names that stay keep their readers
		of := t.node(id)
		if of.by == nil {
			of.by = &smallset.Set[*Node[E]]{}
			t.index.count(id, 1)
		}
		of.by.Add(n)
		n.refs[i] = of
	}
	t.dropReader(n, before)
}

// dropReader removes n from the readers of those Nodes in before that n does not look up any more. A Node is the entry
// of one name.
func (t *Table[E]) dropReader(n *Node[E], before []*Node[E]) {
	if len(before) == 0 {
		return
	}
	kept := make(map[*Node[E]]bool, len(n.refs))
	for _, of := range n.refs {
		kept[of] = true
	}
	for _, of := range before {
		if kept[of] || of.by == nil || !of.by.Remove(n) {
			continue
		}
		of.by = nil
		id := of.ID()
		t.index.count(id, -1)
		if t.missing[id] == of {
			delete(t.missing, id)
		}
	}
}

// node returns the Node of a name, which need not have an object.
func (t *Table[E]) node(id object.ID) *Node[E] {
	n := t.objects[id]
	if n == nil {
		n = t.missing[id]
	}
	if n == nil {
		n = &Node[E]{}
		n.setName(id)
		t.missing[id] = n
	}
	return n
}

// Refs returns the names of the last SetRefs, in their order. The caller owns the slice.
func (n *Node[E]) Refs() []object.ID {
	refs := make([]object.ID, len(n.refs))
	for i, of := range n.refs {
		refs[i] = of.ID()
	}
	return refs
}

// Pods yields the Nodes of the Pods that the object looked up by name and that have a good version.
func (n *Node[E]) Pods() iter.Seq[*Node[E]] {
	return func(yield func(*Node[E]) bool) {
		for _, of := range n.refs {
			if _, is := of.parsed.(*normal.Pod); is && !yield(of) {
				return
			}
		}
	}
}

// looksUp reports whether the object looked up exactly these names before.
func (n *Node[E]) looksUp(refs []object.ID) bool {
	if len(n.refs) != len(refs) {
		return false
	}
	for i, of := range n.refs {
		if of.ID() != refs[i] {
			return false
		}
	}
	return true
}

// MarkReaders marks all objects that looked up a name. An object of this name need not exist.
func (t *Table[E]) MarkReaders(name object.ID) {
	switch name {
	case meshUsers:
		for id, n := range t.objects {
			if n.usesMesh {
				t.Mark(id)
			}
		}
		return
	case networkUsers:
		for id := range t.objects {
			if readsNetworks[id.Kind] {
				t.Mark(id)
			}
		}
		return
	}
	n := t.objects[name]
	if n == nil {
		n = t.missing[name]
	}
	if n == nil {
		return
	}
	for reader := range n.by.All() {
		t.Mark(reader.ID())
	}
}

// Needed returns the names that objects look up in one of the leader's own sources. The argument source must be
// origin.DNS or origin.JWKS. For any other source, Needed panics. The names are in no order, and must be read before
// the Table changes. The result changed reports whether a name was added or removed since the last call for this
// source.
func (t *Table[E]) Needed(source string) (names iter.Seq[object.ID], changed bool) {
	d := t.index.demands[source]
	changed, d.changed = d.changed, false
	return maps.Keys(d.names), changed
}
