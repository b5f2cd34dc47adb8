package ingest

import (
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/smallset"
)

// entry is one object as it was emitted last. There are hundreds of thousands, most of them Pods: what few have is in seldom.
type entry struct {
	object   *object.Object // nil: it was never readable, or nobody emitted it
	pod      *normal.Pod    // what it says as a Pod; nil: it is none, or was never readable
	records  []model.Record // its last good form
	problems []object.Problem
	refs     []*entry              // what it looked up, there or not
	by       *smallset.Set[*entry] // objects that looked it up: Pods, Nodes, Namespaces, Roles; nil: none did
	seldom   *seldom               // nil: it has none of these
	closed   bool                  // records is not a good form: it closes what an unreadable policy selects
	spoiled  bool                  // its present content is not what records says
	mesh     bool                  // its records depend on the mesh configuration
	waiting  bool                  // the tenant's budget has no room for seldom.offered
}

// seldom is what few objects have.
type seldom struct {
	id      object.ID        // where there is no object
	private model.PrivateKey // of its record, which is without it
	adopted []model.Key      // stored records of it from before this process, which stand while it is spoiled
	parsing []object.Problem // those of its parsing, where it is joined with
	offered []model.Record   // see entry.waiting
}

func (s *seldom) none() bool {
	return s.id == object.ID{} && len(s.private) == 0 && len(s.adopted) == 0 && len(s.parsing) == 0 && len(s.offered) == 0
}

// few is the seldom of an entry; the zero value where it has none.
func (e *entry) few() seldom {
	if e.seldom == nil {
		return seldom{}
	}
	return *e.seldom
}

// setFew replaces it.
func (e *entry) setFew(s seldom) {
	switch {
	case s.none():
		e.seldom = nil
	case e.seldom == nil:
		e.seldom = &s
	default:
		*e.seldom = s
	}
}

func (e *entry) setParsing(problems []object.Problem) {
	if e.seldom != nil || len(problems) > 0 {
		few := e.few()
		few.parsing = problems
		e.setFew(few)
	}
}

func (e *entry) setAdopted(keys []model.Key) {
	if e.seldom != nil || len(keys) > 0 {
		few := e.few()
		few.adopted = keys
		e.setFew(few)
	}
}

// setRecords takes over records with their private key; none: they have none.
func (e *entry) setRecords(records []model.Record, private model.PrivateKey) {
	if e.records = records; e.seldom != nil || len(private) > 0 {
		few := e.few()
		few.private, few.adopted = private, nil
		e.setFew(few)
	}
}

// offer has records wait for the tenant's budget; nil: none wait.
func (e *entry) offer(records []model.Record, waiting bool) {
	if e.waiting = waiting; e.seldom != nil || len(records) > 0 {
		few := e.few()
		few.offered = records
		e.setFew(few)
	}
}

// setObject takes over an object as it is now.
func (e *entry) setObject(o *object.Object) {
	if e.object = o; e.seldom != nil {
		few := e.few()
		few.id = object.ID{}
		e.setFew(few)
	}
}

// name gives an entry without an object its name.
func (e *entry) name(id object.ID) {
	few := e.few()
	few.id = id
	e.setFew(few)
}

// id names the object.
func (e *entry) id() object.ID {
	if e.object != nil {
		return e.object.ID
	}
	return e.few().id
}

// entryOf is the entry of an object that is there now, which may have been looked up before.
func (w *inventory) entryOf(id object.ID) *entry {
	e := w.objects[id]
	if e == nil {
		if e = w.missing[id]; e == nil {
			e = &entry{}
		}
		delete(w.missing, id)
		w.objects[id] = e
	}
	return e
}

// forgetObject takes an object away; where others look it up they still do.
func (w *inventory) forgetObject(id object.ID, e *entry) {
	delete(w.objects, id)
	if e.by != nil {
		*e = entry{by: e.by}
		e.name(id)
		w.missing[id] = e
	}
}

// setRefs replaces what an object looked up.
func (w *inventory) setRefs(e *entry, refs []object.ID) {
	if looked(e.refs, refs) {
		return
	}
	addresses := 0 // how many more addresses are looked up than before
	for _, of := range e.refs {
		id := of.id()
		if normal.IsPodAt(id) {
			addresses--
		}
		if of.by != nil && of.by.Remove(e) {
			of.by = nil
			if w.missing[id] == of {
				delete(w.missing, id)
			}
		}
		w.countName(id, -1)
	}
	e.refs = nil
	if len(refs) > 0 {
		e.refs = make([]*entry, len(refs))
	}
	for i, id := range refs {
		of := w.objects[id]
		if of == nil {
			of = w.missing[id]
		}
		if of == nil {
			of = &entry{}
			of.name(id)
			w.missing[id] = of
		}
		if of.by == nil {
			of.by = &smallset.Set[*entry]{}
		}
		of.by.Add(e)
		e.refs[i] = of
		w.countName(id, 1)
		if normal.IsPodAt(id) {
			addresses++
		}
	}
	w.podsAt.looks(e.id(), addresses)
}

// looked says whether these entries are exactly those that the object looked up before.
func looked(all []*entry, refs []object.ID) bool {
	if len(all) != len(refs) {
		return false
	}
	for i, of := range all {
		if of.id() != refs[i] {
			return false
		}
	}
	return true
}

// touch has the records made again of all objects that looked up this one, whether it is there or not.
func (w *inventory) touch(of object.ID, touched map[object.ID]bool) {
	e := w.objects[of]
	if e == nil {
		e = w.missing[of]
	}
	if e == nil || e.by == nil {
		return
	}
	for reader := range e.by.All() {
		touched[reader.id()] = true
	}
}

// shareEndpoints has an endpoint of a slice be the one of its Pod's Workload where they are equal, as they mostly are, so that there is one of them in memory. The
// records are new: nobody else has them yet.
func shareEndpoints(refs []*entry, records []model.Record) {
	var of map[string]*model.Endpoint
	for _, r := range records {
		slice, is := r.(*model.Endpoints)
		if !is {
			return
		}
		if of == nil {
			of = endpointsOf(refs)
		}
		for i, e := range slice.Spec.GetEndpoints() {
			if own := of[e.GetAddress()]; own != nil && model.SameEndpoint(own, e) {
				slice.Spec.Endpoints[i] = own
			}
		}
	}
}

// endpointsOf is the endpoints of Pods, by address.
func endpointsOf(refs []*entry) map[string]*model.Endpoint {
	all := map[string]*model.Endpoint{}
	for _, ref := range refs {
		if ref.pod == nil || len(ref.records) == 0 {
			continue
		}
		if w, is := ref.records[0].(*model.Workload); is {
			all[w.Spec.GetEndpoint().GetAddress()] = w.Spec.GetEndpoint()
		}
	}
	return all
}
