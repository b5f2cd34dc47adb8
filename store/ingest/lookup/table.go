// Package lookup holds the objects that sources emitted, the parsed form of the kinds that other objects are joined
// with, and which object looked up which.
//
// # Data structures
//
// Table maps each object's ID to a Node. A Node has the object, its parsed form where the kind has a row in the table
// of kinds (rows.go), and edges to the Nodes that its object looked up, whether those exist or not. E is the data that
// the caller keeps with each object. A row says how an object of the kind is parsed, when two parsed forms are equal,
// which names their readers looked up, and which indexes follow the kind (index.go). Lookups of normal.Lookup read
// parsed forms and indexes.
//
// # One change
//
// Put parses an object. Where its parsed form differs from the one before, the Table updates the indexes and marks the
// readers. Renew calls the caller with each marked object: it makes the object's records again, and stores the names
// that were looked up by SetRefs.
//
// Owns: the objects as emitted last, their parsed forms.  Reads: store/normal, store/object.  Never: makes records;
// knows the store.
package lookup

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
)

// Table holds objects of all kinds. One goroutine owns it.
type Table[E any] struct {
	normal  *normal.Normalizer
	objects map[object.ID]*Node[E]
	missing map[object.ID]*Node[E] // names that objects looked up and that no object has
	marked  map[object.ID]bool     // objects whose records are to be made again
	index   *indexes
	mark    func(name object.ID) // MarkReaders
}

// Node is one object, or a name that objects looked up. There are hundreds of thousands, so fields that few Nodes need
// are pointers.
type Node[E any] struct {
	object   *object.Object // nil: the object was never readable, is gone, or does not exist
	name     *object.ID     // of a Node without object
	parsed   any            // the last good parsed form; nil: the kind has no row, or nothing good is known
	refs     []*Node[E]     // Nodes that the object looked up
	by       *smallset.Set[*Node[E]]
	usesMesh bool // the object's records depend on the mesh configuration
	Entry    E    // the caller's
}

// New makes an empty Table.
func New[E any](n *normal.Normalizer) *Table[E] {
	t := &Table[E]{normal: n, objects: map[object.ID]*Node[E]{}, missing: map[object.ID]*Node[E]{}, marked: map[object.ID]bool{}}
	t.index, t.mark = newIndexes(t.pods), t.MarkReaders
	return t
}

// Object returns the object as it was emitted last; nil: it could not be read, or is gone.
func (n *Node[E]) Object() *object.Object { return n.object }

// ID names the object.
func (n *Node[E]) ID() object.ID {
	if n.object != nil {
		return n.object.ID
	}
	return *n.name
}

// UsesMesh reports whether the object's records depend on the mesh configuration.
func (n *Node[E]) UsesMesh() bool { return n.usesMesh }

// Get returns the Node of an object that a source emitted; nil: no source did.
func (t *Table[E]) Get(id object.ID) *Node[E] { return t.objects[id] }

// Len counts the objects.
func (t *Table[E]) Len() int { return len(t.objects) }

// All returns all objects, in no order. The caller may remove the object at hand.
func (t *Table[E]) All() iter.Seq2[object.ID, *Node[E]] { return maps.All(t.objects) }

// Add returns the Node of an object that exists from now on. The Node keeps the readers that looked the name up before.
func (t *Table[E]) Add(id object.ID) *Node[E] {
	n := t.add(id)
	if n.object == nil && n.name == nil {
		n.setName(id)
	}
	return n
}

func (t *Table[E]) add(id object.ID) *Node[E] {
	n := t.objects[id]
	if n == nil {
		if n = t.missing[id]; n == nil {
			n = &Node[E]{}
		}
		delete(t.missing, id)
		t.objects[id] = n
	}
	return n
}

// setName names a Node without object. Only such Nodes take memory for a name.
func (n *Node[E]) setName(id object.ID) { n.name = &id }

// Put stores an object without reading it, and returns its Node.
func (t *Table[E]) Put(o *object.Object) *Node[E] {
	n := t.add(o.ID)
	n.object, n.name = o, nil
	return n
}

// Parsed is the outcome of Table.Parse.
type Parsed struct {
	Joined   bool // other objects are joined with the object's kind
	Records  bool // objects of the kind have records of their own
	Readable bool // Parse read the object; if not, the parsed form before stays
	Changed  bool // the object's own records may differ from those before
	Problems []object.Problem
}

// Parse reads the object of a Node, where other objects are joined with its kind. Readers are marked if the parsed form
// changed. An object in a version that is not served is not read.
func (t *Table[E]) Parse(n *Node[E]) Parsed {
	r := rowOf(t.normal, n.object.ID)
	if r == nil || r.source == "" && !normal.Served(n.object) {
		return Parsed{Records: true, Changed: true}
	}
	before := n.parsed
	after, problems := r.parse(t.normal, n.object, before)
	out := Parsed{Joined: true, Records: r.records != nil, Readable: after != nil, Problems: problems}
	if after != nil && (before == nil || !r.equal(before, after)) {
		t.set(r, n, after)
		out.Changed = out.Records && r.records(before, after)
	}
	return out
}

// Unreadable notes that an object exists and cannot be read, and returns its Node. Its last good parsed form stays.
func (t *Table[E]) Unreadable(id object.ID) *Node[E] {
	n := t.Add(id)
	if r := rowOf(t.normal, id); r != nil && r.unread != nil && n.parsed == nil {
		t.set(r, n, r.unread())
	}
	return n
}

// Vacate takes the object from a Node whose parsed form stays in effect.
func (t *Table[E]) Vacate(n *Node[E]) {
	n.setName(n.ID())
	n.object = nil
}

// Remove removes an object. Its readers are marked, and stay known.
func (t *Table[E]) Remove(id object.ID) {
	n := t.objects[id]
	if n == nil {
		return
	}
	t.SetRefs(n, nil, false)
	if r := rowOf(t.normal, id); r != nil && n.parsed != nil {
		t.set(r, n, nil)
	}
	delete(t.objects, id)
	if n.by != nil {
		*n = Node[E]{by: n.by}
		n.setName(id)
		t.missing[id] = n
	}
}

// set replaces a parsed form, updates the indexes, and marks the readers.
func (t *Table[E]) set(r *row, n *Node[E], after any) {
	id, before := n.ID(), n.parsed
	n.parsed = after
	if r.index != nil {
		r.index(t.index, id, before, after)
	}
	t.MarkReaders(id)
	if r.readers != nil {
		r.readers(t.index, id, before, after, t.mark)
	}
}

// Mark has the records of an object made again.
func (t *Table[E]) Mark(id object.ID) { t.marked[id] = true }

// Renew calls renew with each marked object that exists, in the order of their IDs, and clears the marks.
func (t *Table[E]) Renew(renew func(n *Node[E])) {
	ids := slices.SortedFunc(maps.Keys(t.marked), object.ID.Compare)
	t.marked = map[object.ID]bool{}
	for _, id := range ids {
		if n := t.objects[id]; n != nil && n.object != nil {
			renew(n)
		}
	}
	t.index.pods.all = nil
}

// Marked reports whether the records of an object are to be made again.
func (t *Table[E]) Marked() bool { return len(t.marked) > 0 }
