package mirror

import (
	"iter"
	"slices"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// Snapshot contains the records at one complete revision. The head is the leader's summary of all records. A stored
// record that does not decode, or whose kind contradicts the head, has its last good version or is absent. A Snapshot
// is immutable, shares structure with its predecessor, and may be read by any number of goroutines. A record with
// unchanged content keeps its pointer from snapshot to snapshot. So does an unchanged Endpoint inside an Endpoints
// record.
type Snapshot struct {
	revision int64
	place    kv.Place                   // see the method Place
	records  *iradix.Tree[model.Record] // by treeKey
	byHost   *iradix.Tree[model.Record] // by hostKey
	counts   [model.NumKinds]int
	unknown  []model.Unknown // ordered by path; immutable
}

// Edit is one record that differs between two snapshots. Old is nil for an added record, New for a removed one.
type Edit struct {
	Old, New model.Record
	// In are the revisions of the batches that wrote the record; nil: unknown, for example if it was read from a list.
	// It is shared by the edits of a batch, and read-only.
	In *model.Span
}

// Then returns e and its successor next, which changes the same record, as one edit.
func (e Edit) Then(next Edit) Edit {
	one := Edit{Old: e.Old, New: next.New}
	if e.In != nil && next.In != nil {
		in := e.In.Join(*next.In)
		one.In = &in
	}
	return one
}

// Key returns the key of the edited record. Old or New must not be nil.
func (e Edit) Key() model.Key {
	if e.New != nil {
		return e.New.Meta().Key
	}
	return e.Old.Meta().Key
}

// Change is one step between two snapshots.
type Change struct {
	Old, New *Snapshot // never nil
	Edits    []Edit    // the records that differ, ordered by key (model.Key.Compare)
	// Committed is the time, by the leader's clock, at which the leader wrote the oldest batch of this change. It is
	// zero if the time is unknown, for example if the change was read from a list.
	Committed time.Time
}

// Empty returns a new snapshot at revision 0 without records, as before the first read.
func Empty() *Snapshot {
	return &Snapshot{records: iradix.New[model.Record](), byHost: iradix.New[model.Record]()}
}

// Revision returns the store's revision at which this snapshot is complete.
func (s *Snapshot) Revision() int64 { return s.revision }

// Place returns the position of the snapshot's head in the chain of heads that leaders have written. If the head states
// no position, the result is that of the newest earlier head that states one. The result is not Known if no head has
// stated a position.
func (s *Snapshot) Place() kv.Place { return s.place }

// Len returns the number of records of one kind.
func (s *Snapshot) Len(kind model.Kind) int { return s.counts[kind] }

// Unknown lists the records of kinds that this build does not know, by path. Callers must not change the list.
func (s *Snapshot) Unknown() []model.Unknown { return s.unknown }

// Covered returns the first record, by path, of an unknown kind that forbids serving the proxies of a namespace
// (model.Closing). It returns false if there is no such record.
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

// Get returns the record with a key; nil and false if the record is absent.
func (s *Snapshot) Get(key model.Key) (model.Record, bool) {
	return s.records.Get([]byte(treeKey(key)))
}

// All iterates over the records of one kind, namespace by namespace, and within a namespace by name, then origin. The
// order of namespaces is that of the texts NAMESPACE/, so a-b comes before a. Of records with one name, those of the
// config cluster come first.
func (s *Snapshot) All(kind model.Kind) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/")
}

// In iterates over the records of one kind in one namespace, from all clusters, by name, then origin.
func (s *Snapshot) In(kind model.Kind, namespace string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/")
}

// Named iterates over the records of one kind, namespace and name: one for each origin, the config cluster first.
func (s *Snapshot) Named(kind model.Kind, namespace, name string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/"+name+"\x00")
}

// WithPrefix iterates over the records of one kind and namespace whose names begin with a prefix, by name, then origin.
func (s *Snapshot) WithPrefix(kind model.Kind, namespace, prefix string) iter.Seq[model.Record] {
	return prefixed(s.records, kind.String()+"/"+namespace+"/"+prefix)
}

// ByHost iterates over the records of one kind that name exactly this host, in the order of All. These are the hosts of
// a Service, ServiceEntry, Endpoints or VirtualService, and the host of a DestinationRule. Wildcards are compared
// literally.
func (s *Snapshot) ByHost(kind model.Kind, host string) iter.Seq[model.Record] {
	return prefixed(s.byHost, hostKey(kind, host, ""))
}

// Mesh returns the mesh configuration, or model.DefaultMesh if there is no record of it.
func (s *Snapshot) Mesh() *model.Mesh {
	if r, ok := s.Get(model.MeshKey); ok {
		return r.(*model.Mesh)
	}
	return model.DefaultMesh()
}

// Apply returns the change to the snapshot at a later revision. It first removes the records whose keys are in deletes,
// and then adds or replaces the records in puts. Puts with unchanged content and deletes of absent records cause no
// edits. The new snapshot owns the puts and does not change them. The receiver stays unchanged.
func (s *Snapshot) Apply(revision int64, puts []model.Record, deletes []model.Key) Change {
	next := *s
	next.revision = revision
	records, hosts := s.records.Txn(), s.byHost.Txn()
	edits, order := make(map[model.Key]Edit, len(puts)+len(deletes)), make([]model.Key, 0, len(puts)+len(deletes))
	set := func(key model.Key, record model.Record) {
		tree := treeKey(key)
		path := []byte(tree)
		old, had := records.Get(path)
		if had && record != nil && old.Meta().Hash == record.Meta().Hash || !had && record == nil {
			return
		}
		record = shareEndpoints(old, record)
		for _, host := range model.HostsOf(old) {
			hosts.Delete([]byte(hostKey(key.Kind, host, tree)))
		}
		for _, host := range model.HostsOf(record) {
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
			order = append(order, key)
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
	return Change{Old: s, New: &next, Edits: ordered(edits, order)}
}

// Diff returns the change between any two snapshots, by the content of their records. Its Committed is zero.
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

// ordered returns the edits that change a record, ordered by key. keys are the keys of the edits, in any order; the
// order of keys itself takes the least time.
func ordered(edits map[model.Key]Edit, keys []model.Key) []Edit {
	all := make([]Edit, 0, len(edits))
	for _, key := range keys {
		e := edits[key]
		if e.Old != nil && e.New != nil && e.Old.Meta().Hash == e.New.Meta().Hash || e.Old == nil && e.New == nil {
			continue // the record has returned to its old content
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

// treeKey returns the key of a record in the tree. Records of one namespace, and of one name, are adjacent. Within a
// namespace, the keys sort like model.Key.Compare. No part of a key has a slash or a NUL (model.Key.Check).
func treeKey(key model.Key) string {
	return key.Kind.String() + "/" + key.Namespace + "/" + key.Name + "\x00" + key.Origin.Cluster() + "\x00" + key.Origin.Source()
}

func hostKey(kind model.Kind, host, path string) string {
	return kind.String() + "\x00" + host + "\x00" + path
}

// shareEndpoints returns record with the old pointers of endpoints that did not change, so that an edit of one endpoint
// of a slice touches that endpoint alone.
func shareEndpoints(old, record model.Record) model.Record {
	before, ok := old.(*model.Endpoints)
	after, isEndpoints := record.(*model.Endpoints)
	if !ok || !isEndpoints {
		return record
	}
	shared := &model.EndpointsSpec{Hosts: after.Spec.Hosts, Ports: after.Spec.Ports, Endpoints: slices.Clone(after.Spec.Endpoints)}
	var moved []int // indices of endpoints that differ from the old endpoint at the same index
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
