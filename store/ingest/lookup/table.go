// Package lookup stores the objects that sources emitted, and the names that each object looked up when it was
// normalised (converted to records). It parses the objects of joined kinds. A kind is joined if other objects look up
// its objects, as EndpointSlices look up Pods. When a looked-up object changes, the objects that looked it up (its
// readers) are marked to be normalised again.
//
// # Data structures
//
// Table maps each object's ID to a Node. A Node has the object, its parsed form if the kind has a row (rows.go), and
// edges to the Nodes of the names that the object looked up, whether or not objects with these names exist. The type
// parameter E is the type of the data that the caller stores with each object. A row has the functions of one kind:
// parse an object, compare two parsed forms, list the names under which readers look up the object, and update indexes
// (index.go). The methods of normal.Lookup read parsed forms and indexes.
//
// # One change
//
// Put stores an object, and Parse parses it. If its parsed form changed, the Table updates the indexes and marks the
// readers. Renew passes the marked objects to the caller. The caller normalises each of them, and stores the names
// that were looked up with SetRefs.
//
// Owns: the objects as emitted last, their parsed forms.
// Reads: store/normal, store/object, store/isolation.
// Never: makes records, except those of the mesh configuration; accesses the store.
package lookup

import (
	"iter"
	"maps"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
)

// Table contains objects of all kinds. E is the type of Node.Entry. One goroutine owns the Table; only its Addresses
// are safe for concurrent use.
type Table[E any] struct {
	normal  *normal.Normalizer
	objects map[object.ID]*Node[E]
	missing map[object.ID]*Node[E] // looked-up names without an object
	marked  map[object.ID]bool     // objects to normalise again
	index   *indexes
	mark    func(name object.ID) // the method MarkReaders
}

// Node is one object, or one looked-up name without an object. There are hundreds of thousands of Nodes, so fields that
// few Nodes need are pointers.
type Node[E any] struct {
	object   *object.Object          // nil: the object was never readable, is gone, or does not exist
	name     *object.ID              // name of a Node without object
	parsed   any                     // the last good parsed form; nil: the kind has no row, or no version was valid
	refs     []*Node[E]              // Nodes that the object looked up
	by       *smallset.Set[*Node[E]] // Nodes that looked up this one; nil: no reader
	usesMesh bool                    // the object's records depend on the mesh configuration
	Entry    E                       // the caller's data; Remove may reset it to the zero value
}

// New returns an empty Table, which parses objects with n.
func New[E any](n *normal.Normalizer) *Table[E] {
	t := &Table[E]{normal: n, objects: map[object.ID]*Node[E]{}, missing: map[object.ID]*Node[E]{}, marked: map[object.ID]bool{}}
	t.index, t.mark = newIndexes(t.pods), t.MarkReaders
	return t
}

// Expect reserves memory for a number of objects. The Table must be empty.
func (t *Table[E]) Expect(objects int) {
	t.objects, t.marked = make(map[object.ID]*Node[E], objects), make(map[object.ID]bool, objects)
}

// Object returns the last readable version of the object, read-only. It returns nil if no version was readable, if the
// object does not exist, or after Vacate.
func (n *Node[E]) Object() *object.Object { return n.object }

// ID returns the ID of the object, or the looked-up name.
func (n *Node[E]) ID() object.ID {
	if n.object != nil {
		return n.object.ID
	}
	return *n.name
}

// UsesMesh reports whether the object's records depend on the mesh configuration, as the last SetRefs states.
func (n *Node[E]) UsesMesh() bool { return n.usesMesh }

// Get returns the Node of an object, readable or not. It returns nil for an object that the Table does not contain,
// even if objects look up its name.
func (t *Table[E]) Get(id object.ID) *Node[E] { return t.objects[id] }

// Len returns the number of objects, including unreadable and vacated ones.
func (t *Table[E]) Len() int { return len(t.objects) }

// All yields all objects, including unreadable and vacated ones, in no order. The caller may remove the yielded object
// meanwhile.
func (t *Table[E]) All() iter.Seq2[object.ID, *Node[E]] { return maps.All(t.objects) }

// Add returns the Node of an object. If the Node is missing, it is created without an object. Readers that looked up
// the name before stay attached.
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

// setName stores the name of a Node without an object. The name of any other Node is in its object.
func (n *Node[E]) setName(id object.ID) { n.name = &id }

// Put stores an object, without parsing it, in place of an earlier version, and returns its Node. The object must not
// change afterwards.
func (t *Table[E]) Put(o *object.Object) *Node[E] {
	n := t.add(o.ID)
	n.object, n.name = o, nil
	return n
}

// Parsed is the result of Table.Parse.
type Parsed struct {
	Joined   bool             // the object is of a joined kind, and Parse tried to parse it
	Records  bool             // objects of the kind have records of their own
	Readable bool             // the object was parsed; if false, the earlier parsed form stays
	Changed  bool             // the object's own records may have changed
	Problems []object.Problem // problems of parsing; nil: no problems
}

// Parse parses the object of a Node if the object is of a joined kind. If a source of configuration emitted the object,
// its API version must be supported too. The Node must have an object. If the parsed form changed, the object's readers
// are marked. For an object that Parse does not try to parse, only Records and Changed of the result are true.
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

// Unreadable adds an object that exists but cannot be read, and returns its Node. Its last readable version and last
// good parsed form stay. A mesh configuration without a parsed form gets an empty Mesh, which is marked as stale.
func (t *Table[E]) Unreadable(id object.ID) *Node[E] {
	n := t.Add(id)
	if r := rowOf(t.normal, id); r != nil && r.unread != nil && n.parsed == nil {
		t.set(r, n, r.unread())
	}
	return n
}

// Vacate removes the object of a Node. The Node stays in the Table, and its parsed form stays in effect.
func (t *Table[E]) Vacate(n *Node[E]) {
	n.setName(n.ID())
	n.object = nil
}

// Remove removes an object, if it exists. If the object has a parsed form, its readers are marked. They remain readers
// of the name.
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

// Mark marks an object to be normalised again.
func (t *Table[E]) Mark(id object.ID) { t.marked[id] = true }

// Renew clears the marks, and calls renew with the marked objects, ordered by ID, if there are any. Marked objects
// without a readable version are left out. Marks that renew sets stay for the next call of Renew.
func (t *Table[E]) Renew(renew func(all []*Node[E])) {
	ids := slices.SortedFunc(maps.Keys(t.marked), object.ID.Compare)
	t.marked = map[object.ID]bool{}
	all := make([]*Node[E], 0, len(ids))
	for _, id := range ids {
		if n := t.objects[id]; n != nil && n.object != nil {
			all = append(all, n)
		}
	}
	if len(all) > 0 {
		renew(all)
	}
	t.index.pods.all = nil
}

// Marked reports whether any object is marked.
func (t *Table[E]) Marked() bool { return len(t.marked) > 0 }
