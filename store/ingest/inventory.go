package ingest

import (
	"slices"
	"time"

	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/ingest/faults"
	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// inventory converts objects to wanted records and problems. applyEvents receives the events of sources; results are in
// wanted and faults. It does not access the store. State owns it.
type inventory struct {
	normal     *normal.Normalizer
	objects    *lookup.Table[entry]
	wanted     *wanted
	shown      *shown
	faults     *faults.List // of shown
	guard      guard
	heard      time.Time // when the present events were emitted; zero: unknown
	normalised uint64    // number of objects turned into records
	yielder    loop.Yielder
	unreadable map[string]bool // locations of documents whose names cannot be read
	meshMissed object.ID       // removed mesh configuration whose last good version stays in effect; zero: none was removed
	// refused has normal.Result.Refused of each normalised object; nil: not recorded, as in the leader.
	refused  map[object.ID][]object.Problem
	parallel int                      // number of objects from which they are normalised on all cores (normaliseAhead); 0: never
	ahead    map[*node]*normal.Result // results of normaliseAhead

	// Users of changed records.
	references *references
	crossCheck *crossCheck
	// TLS content of Secrets and ConfigMaps.
	credentials *credentials

	labels  labels   // values of TenantLabel, which define tenants
	budgets *budgets // budgets of tenants; nil: no bounds
	root    string   // root namespace for which the budgets were computed
}

func newInventory(o Options) *inventory {
	n, shown := normal.New(o.Normal), newShown()
	w := &inventory{normal: n, objects: lookup.New[entry](n), wanted: newWanted(),
		shown: shown, faults: shown.faults, guard: newGuard(o.Crashes),
		unreadable: map[string]bool{}, references: newReferences(o.SecretUses),
		credentials: newCredentials()}
	w.crossCheck = &crossCheck{records: w.wanted.records, shown: shown,
		settings: analysis.Settings{OwnGateways: o.Normal.OwnGateways, Locate: w.location}}
	if o.Budget != (Budget{}) {
		w.budgets = newBudgets(o.Budget, w.applies, w.applyOffered)
	}
	return w
}

// location returns the location of an object, for messages; empty if the object is unknown or unreadable.
func (w *inventory) location(id object.ID) string {
	if n := w.objects.Get(id); n != nil && n.Object() != nil {
		return n.Object().Location
	}
	return ""
}

// applyEvents applies events that belong together. It first stores and parses all objects, then normalises each marked
// object once.
func (w *inventory) applyEvents(events []object.Event) {
	for _, e := range events {
		w.noteTenant(e)
		switch e.Op {
		case object.Synced:
		case object.Put:
			w.endMissingMesh(e.ID)
			w.putGuarded(e.Object)
		case object.Delete:
			if !w.keepMissingMesh(e.ID) {
				w.remove(e)
			}
		case object.Broken:
			w.broken(e)
		case object.Forget:
			w.forget(e.ID.Origin)
		}
	}
	w.renew()
}

// renew normalises all marked objects. If that changes the owners of hosts or addresses, objects that looked them up
// are marked, and renew repeats. The repetition ends, because owners do not depend on VirtualServices, and lookups of
// Services do not depend on ServiceEntries.
func (w *inventory) renew() {
	for again := true; again; again = w.objects.Marked() {
		w.followRoot()
		w.objects.Renew(w.renewAll)
		w.applyBudgets()
	}
}

// renewAll normalises objects, which are ordered by ID.
func (w *inventory) renewAll(all []*node) {
	change := w.changingOwners(all)
	for i, n := range all {
		switch {
		case w.parallel == 0:
		case i == 0 && change > 0:
			w.normaliseAhead(all[:change], false)
		case i == change:
			w.normaliseAhead(all[change:], true)
		}
		w.yielder.Yield()
		w.normalise(n)
	}
	w.ahead = nil
}

// put stores an object. It is normalised again unless its parsed form shows that its records stay the same.
func (w *inventory) put(o *object.Object) {
	at := w.location(o.ID)
	n := w.objects.Put(o)
	if at != o.Location {
		w.crossCheck.relocate(n.Entry.records)
	}
	w.markOther(o.ID)
	e, parsed := &n.Entry, w.objects.Parse(n)
	switch {
	case !parsed.Joined:
		w.objects.Mark(o.ID)
	case !parsed.Records || !parsed.Readable:
		e.spoiled = parsed.Records
		w.faults.Set(o.ID, parsed.Problems)
	case parsed.Changed || e.spoiled || !slices.Equal(parsed.Problems, e.few().parsing):
		e.setParsing(parsed.Problems)
		w.objects.Mark(o.ID)
	}
}

// remove removes an object, with its records and problems. An event without a name reports that an unreadable document
// is gone.
func (w *inventory) remove(e object.Event) {
	if e.ID.Name == "" {
		delete(w.unreadable, e.Location)
		return
	}
	n := w.objects.Get(e.ID)
	if n == nil {
		return
	}
	if e.ID == w.meshMissed {
		w.meshMissed = object.ID{}
	}
	w.setRecords(n, nil, nil)
	w.faults.Set(e.ID, nil)
	delete(w.refused, e.ID)
	w.credentials.remove(e.ID)
	w.objects.Remove(e.ID)
	w.markOther(e.ID)
}

// broken marks an object as unreadable. The object's last good version stays in effect. A policy without a good version
// closes its namespace. An event without a name reports an unreadable document.
func (w *inventory) broken(e object.Event) {
	if e.ID.Name == "" {
		w.unreadable[e.Location] = true
		return
	}
	n := w.objects.Unreadable(e.ID)
	n.Entry.spoiled = true
	if w.closeUnread(e.ID, e.Location, n) {
		w.faults.Set(e.ID, []object.Problem{{ID: e.ID, Location: e.Location, Code: problem.Unreadable, Severity: problem.Error,
			Message: "cannot be read, and no good version is known: all workloads of its namespace (of the mesh, for the root namespace)" +
				" are closed"}})
	}
}

// closeUnread closes the namespace of a policy without a good version, and reports whether it did. In the root
// namespace that is the whole mesh.
func (w *inventory) closeUnread(id object.ID, location string, n *node) bool {
	if len(n.Entry.records) > 0 {
		return false
	}
	closed := w.normal.Closed(&object.Object{ID: id, Location: location}, w.objects.Mesh().GetRootNamespace())
	if closed == nil {
		return false
	}
	n.Entry.closed = true
	w.setRecords(n, []model.Record{closed}, nil)
	return true
}

// normalise makes the records of one object again, and updates its problems and lookups.
func (w *inventory) normalise(n *node) {
	id, e := n.ID(), &n.Entry
	if w.yields(n) {
		return
	}
	if n.MeshOf() != nil && normal.Served(n.Object()) {
		w.normaliseMesh(n)
		return
	}
	w.normalised++
	result := w.result(n)
	w.lapse(n, &result)
	e.spoiled = result.Spoiled
	if w.refused != nil {
		w.refused[id] = result.Refused
	}
	w.faults.Set(id, slices.Concat(e.few().parsing, result.Problems))
	w.credentials.set(id, result.Problems)
	w.objects.SetRefs(n, result.Refs, result.UsesMesh)
	shareEndpoints(n, result.Records)
	switch {
	case !result.Spoiled && e.stays(result):
	case w.offer(n, result):
	case !result.Spoiled:
		e.closed = false
		w.setRecords(n, result.Records, result.Private)
	case result.Closed != nil && (len(e.records) == 0 && len(e.few().adopted) == 0 || e.closed):
		e.closed = true
		w.setRecords(n, []model.Record{result.Closed}, nil)
	}
}

// setRecords replaces an object's records, and updates all parts of the inventory that depend on records. Records with
// a private key become wanted once the key is sealed.
func (w *inventory) setRecords(n *node, records []model.Record, private model.PrivateKey) {
	e := &n.Entry
	w.references.replace(e.records, records)
	if w.budgets != nil {
		w.budgets.weights.index.Replace(e.records, records)
	}
	w.crossCheck.note(e.records, records)
	w.objects.SetServices(e.records, records)
	w.wanted.remove(e.records)
	w.wanted.note(e.few().adopted)
	if len(private) == 0 {
		w.wanted.add(records)
	} else {
		w.wanted.awaitSeal(private, records, w.heard)
	}
	e.setRecords(records, private)
}

// sourceOf returns the ID of the object from which a record is made.
func (w *inventory) sourceOf(key model.Key) object.ID {
	if key == model.MeshKey || key == model.MeshGatewaysKey {
		return w.objects.MeshID()
	}
	return normal.SourceObject(key)
}
