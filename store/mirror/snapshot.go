package mirror

import (
	"iter"
	"slices"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Snapshot is every record at one complete revision. It is immutable and shares structure with its predecessor; any
// number of goroutines may read it. Records of equal content are one pointer from snapshot to snapshot, and so are the
// single Endpoints inside an Endpoints record.
type Snapshot struct {
	revision int64
	place    kv.Place                   // of the head that it is of, zero where that says none: else of the newest before it that did
	records  *iradix.Tree[model.Record] // by treeKey
	byHost   *iradix.Tree[model.Record] // by hostKey
	counts   [model.NumKinds]int
	unknown  []model.Unknown // ordered by path; never changed
}

// Edit is one record that differs between two snapshots. Old is nil where it was added, New where it was removed.
type Edit struct{ Old, New model.Record }

// Key is the key of the record that was edited.
func (e Edit) Key() model.Key {
	if e.New != nil {
		return e.New.Meta().Key
	}
	return e.Old.Meta().Key
}

// Change is one step from snapshot to snapshot: exactly what differs, ordered by key.
type Change struct {
	Old, New *Snapshot
	Edits    []Edit
	// Committed is when the leader wrote the oldest batch in this change, by its clock; zero: not known (read from a list).
	Committed time.Time
}

// Empty is the snapshot before anything was read: revision 0, no records.
func Empty() *Snapshot {
	return &Snapshot{records: iradix.New[model.Record](), byHost: iradix.New[model.Record]()}
}

// Revision is the store's revision that this snapshot is complete at.
func (s *Snapshot) Revision() int64 { return s.revision }

// Place is where the head that it is of stands among all that leaders have written; not known where none of them said so.
func (s *Snapshot) Place() kv.Place { return s.place }

// Len is the number of records of one kind.
func (s *Snapshot) Len(kind model.Kind) int { return s.counts[kind] }

// Unknown lists the records of kinds that this build does not know, by path; it is not to be changed.
func (s *Snapshot) Unknown() []model.Unknown { return s.unknown }

// Covered says because of which record of a kind that this build does not know no proxy of a namespace may be let in (model.Closing).
// False: because of none.
func (s *Snapshot) Covered(namespace string) (model.Unknown, bool) {
	if len(s.unknown) == 0 {
		return model.Unknown{}, false
	}
	root := s.Mesh().Spec.GetRootNamespace()
	for _, u := range s.unknown {
		if u.Covers(namespace, root) {
			return u, true
		}
	}
	return model.Unknown{}, false
}

// Get finds one record.
func (s *Snapshot) Get(key model.Key) (model.Record, bool) {
	return s.records.Get([]byte(treeKey(key)))
}

// All iterates over the records of one kind, by namespace, name and origin, as In and ByHost do: of records of one name those of the
// config cluster come first.
func (s *Snapshot) All(kind model.Kind) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/")
}

// In iterates over the records of one kind in one namespace of all clusters.
func (s *Snapshot) In(kind model.Kind, namespace string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/")
}

// Named iterates over the records of one kind and name: one of each origin that has it.
func (s *Snapshot) Named(kind model.Kind, namespace, name string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/"+name+"\x00")
}

// WithPrefix iterates over the records of one kind in one namespace whose names begin with a prefix, by name.
func (s *Snapshot) WithPrefix(kind model.Kind, namespace, prefix string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/"+prefix)
}

// ByHost iterates over the records of one kind that name exactly this host (a Service's or ServiceEntry's hosts, the
// hosts of Endpoints and VirtualServices, the host of a DestinationRule; wildcards are literal here).
func (s *Snapshot) ByHost(kind model.Kind, host string) iter.Seq[model.Record] {
	return prefixed(s.byHost, hostKey(kind, host, ""))
}

// Mesh is the mesh's configuration; the defaults where none was given.
func (s *Snapshot) Mesh() *model.Mesh {
	if r, ok := s.Get(model.MeshKey); ok {
		return r.(*model.Mesh)
	}
	return model.DefaultMesh()
}

// Apply makes the snapshot at a later revision. Puts of equal content and deletes of what is not there are no edits;
// puts are not changed and belong to the snapshot from now on. The receiver stays as it is.
func (s *Snapshot) Apply(revision int64, puts []model.Record, deletes []model.Key) Change {
	next := *s
	next.revision = revision
	records, hosts := s.records.Txn(), s.byHost.Txn()
	edits := map[model.Key]Edit{}
	set := func(key model.Key, record model.Record) {
		tree := treeKey(key)
		path := []byte(tree)
		old, had := records.Get(path)
		if had && record != nil && old.Meta().Hash == record.Meta().Hash || !had && record == nil {
			return
		}
		record = shareEndpoints(old, record)
		for _, host := range hostsOf(old) {
			hosts.Delete([]byte(hostKey(key.Kind, host, tree)))
		}
		for _, host := range hostsOf(record) {
			hosts.Insert([]byte(hostKey(key.Kind, host, tree)), record)
		}
		if record == nil {
			records.Delete(path)
			next.counts[key.Kind]--
		} else {
			records.Insert(path, record)
			if !had {
				next.counts[key.Kind]++
			}
		}
		first, again := edits[key]
		if !again {
			first.Old = old
		}
		edits[key] = Edit{Old: first.Old, New: record}
	}
	for _, key := range deletes {
		set(key, nil)
	}
	for _, record := range puts {
		set(record.Meta().Key, record)
	}
	next.records, next.byHost = records.Commit(), hosts.Commit()
	return Change{Old: s, New: &next, Edits: ordered(edits)}
}

// Diff is the change from one snapshot to any other, by content.
func Diff(from, to *Snapshot) Change {
	var edits []Edit
	for _, kind := range model.Kinds() {
		for r := range from.All(kind) {
			now, ok := to.Get(r.Meta().Key)
			switch {
			case !ok:
				edits = append(edits, Edit{Old: r})
			case now.Meta().Hash != r.Meta().Hash:
				edits = append(edits, Edit{Old: r, New: now})
			}
		}
		for r := range to.All(kind) {
			if _, ok := from.Get(r.Meta().Key); !ok {
				edits = append(edits, Edit{New: r})
			}
		}
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.Key().Compare(b.Key()) })
	return Change{Old: from, New: to, Edits: edits}
}

func ordered(edits map[model.Key]Edit) []Edit {
	all := make([]Edit, 0, len(edits))
	for _, e := range edits {
		if e.Old != nil && e.New != nil && e.Old.Meta().Hash == e.New.Meta().Hash || e.Old == nil && e.New == nil {
			continue // there and back within one change
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Edit) int { return a.Key().Compare(b.Key()) })
	return all
}

func prefixed(tree *iradix.Tree[model.Record], prefix string) iter.Seq[model.Record] {
	return func(yield func(model.Record) bool) {
		tree.Root().WalkPrefix([]byte(prefix), func(_ []byte, r model.Record) bool { return !yield(r) })
	}
}

// treeKey is a key in the order of model.Key.Compare, but for kinds: what is of one namespace, and of one name, stands together. No part
// of a key has a slash or a NUL (model.Key.Check).
func treeKey(key model.Key) string {
	return key.Kind.String() + "/" + key.Namespace + "/" + key.Name + "\x00" + key.Origin.Cluster() + "\x00" + key.Origin.Source()
}

func hostKey(kind model.Kind, host, path string) string {
	return kind.String() + "\x00" + host + "\x00" + path
}

// hostsOf is what ByHost finds a record under.
func hostsOf(r model.Record) []string {
	switch t := r.(type) {
	case *model.Service:
		return t.Spec.Hosts
	case *model.Endpoints:
		return t.Spec.Hosts
	case *model.VirtualService:
		return t.Spec.Hosts
	case *model.DestinationRule:
		return []string{t.Spec.Host}
	}
	return nil
}

// shareEndpoints gives endpoints that did not change the pointers they had, so that an edit of one endpoint of a slice
// is seen as that and no more.
func shareEndpoints(old, record model.Record) model.Record {
	before, ok := old.(*model.Endpoints)
	after, isEndpoints := record.(*model.Endpoints)
	if !ok || !isEndpoints {
		return record
	}
	shared := &model.EndpointsSpec{Hosts: after.Spec.Hosts, Ports: after.Spec.Ports, Endpoints: slices.Clone(after.Spec.Endpoints)}
	var moved []int // endpoints that are others, or stood elsewhere
	known := map[string][]*model.Endpoint{}
	for i, e := range shared.Endpoints {
		if i < len(before.Spec.Endpoints) && model.SameEndpoint(before.Spec.Endpoints[i], e) {
			shared.Endpoints[i] = before.Spec.Endpoints[i]
			continue
		}
		moved = append(moved, i)
		known[e.Address] = nil
	}
	if len(moved) == 0 {
		return &model.Endpoints{Head: after.Head, Spec: shared}
	}
	for _, e := range before.Spec.Endpoints {
		if candidates, wanted := known[e.Address]; wanted {
			known[e.Address] = append(candidates, e)
		}
	}
	for _, i := range moved {
		for _, candidate := range known[shared.Endpoints[i].Address] {
			if model.SameEndpoint(candidate, shared.Endpoints[i]) {
				shared.Endpoints[i] = candidate
				break
			}
		}
	}
	return &model.Endpoints{Head: after.Head, Spec: shared}
}
