package ingest

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/weight"
)

// inventory is every object and what the records should be. It knows nothing of the store. Owned by State.
type inventory struct {
	normal           *normal.Normalizer
	objects          map[object.ID]*entry
	missing          map[object.ID]*entry // what objects look up and is not there
	podsAt           podAddresses
	nodes            map[object.ID]*normal.Node
	namespaces       map[object.ID]*normal.Namespace
	roles            map[object.ID]*normal.Role
	automatic        map[object.ID]map[string][]string // automatic addresses of ServiceEntries, by host
	automaticAt      map[object.ID]object.ID           // whose each of those is (normal.AutomaticAtID)
	clusterAddresses *clusterAddresses
	resolved         map[object.ID][]string    // addresses of names
	names            nameCounts                // that records refer to
	keys             map[object.ID]normal.Keys // of RequestAuthentications, by where they are
	keySets          nameCounts                // of these, those that records refer to
	mesh             *meshv1.MeshConfig
	meshID           object.ID // of the object that says it
	meshMissed       object.ID // that object, where it is gone and its last good form stays in effect; zero: it is there, or there was none
	meshUnsaid       bool      // it is there without key mesh
	networks         *meshv1.MeshNetworks
	unreadable       map[string]bool // locations of documents of which not even the name can be read
	want             map[model.Key]model.Record
	awaitingSeal     map[model.Key]*UnsealedRecord // wanted as soon as they are sealed
	changed          map[model.Key]bool            // keys whose wanted record may differ since changed was last cleared
	faults           *faults                       // those with problems
	heard            time.Time                     // when what is being taken was emitted; zero: not known
	normalised       uint64
	yielder          loop.Yielder // of the step
	analysis         *analysis.Analysis
	edited           map[model.Key]model.Record // what analysis has of the records that may differ by now, nil: nothing; where there is no analysis nothing is noted
	unchecked        bool                       // something has changed since check
	labels           labels
	references       *references
	crashes          *crash.Log
	fault            func(*object.Object) // tests have it panic, where objects are read; nil: nothing is called
	ledger           *ledger              // of the tenants' budgets; nil: there are none
	weights          *weight.Index        // of the records that apply, where there is a ledger
	shown            uint64               // version of the ledger that metrics show
	budgets          struct {
		version  uint64 // of the ledger
		problems []object.Problem
	}
}

func newInventory(options normal.Options, crashes *crash.Log) *inventory {
	if crashes == nil {
		crashes = crash.New(nil)
	}
	return &inventory{crashes: crashes, normal: normal.New(options), objects: map[object.ID]*entry{}, missing: map[object.ID]*entry{},
		nodes: map[object.ID]*normal.Node{}, namespaces: map[object.ID]*normal.Namespace{}, roles: map[object.ID]*normal.Role{},
		automatic: map[object.ID]map[string][]string{}, automaticAt: map[object.ID]object.ID{}, clusterAddresses: &clusterAddresses{users: map[netip.Addr]int32{}}, resolved: map[object.ID][]string{}, names: nameCounts{of: map[object.ID]int{}}, keys: map[object.ID]normal.Keys{}, keySets: nameCounts{of: map[object.ID]int{}}, mesh: model.DefaultMesh().Spec, meshID: normal.New(options).MeshID(), networks: &meshv1.MeshNetworks{}, unreadable: map[string]bool{}, want: map[model.Key]model.Record{}, awaitingSeal: map[model.Key]*UnsealedRecord{}, changed: map[model.Key]bool{}, faults: newFaults(),
		references: newReferences(nil), podsAt: podAddresses{asked: map[podPlace]*podsHere{}}}
}

// The lookups of normal.Lookup.

func (w *inventory) Pod(id object.ID) *normal.Pod {
	if e := w.objects[id]; e != nil {
		return e.pod
	}
	return nil
}

func (w *inventory) Node(id object.ID) *normal.Node { return w.nodes[id] }
func (w *inventory) Nodes(of origin.Origin) iter.Seq[*normal.Node] {
	return func(yield func(*normal.Node) bool) {
		for id, n := range w.nodes {
			if id.Origin == of && !yield(n) {
				return
			}
		}
	}
}
func (w *inventory) Namespace(id object.ID) *normal.Namespace { return w.namespaces[id] }
func (w *inventory) Role(id object.ID) *normal.Role           { return w.roles[id] }
func (w *inventory) Mesh() *meshv1.MeshConfig                 { return w.mesh }
func (w *inventory) Networks() *meshv1.MeshNetworks           { return w.networks }

// take applies events that belong together: first what is joined with, then everything that is touched, each once.
func (w *inventory) take(events []object.Event) {
	touched := map[object.ID]bool{}
	for _, e := range events {
		w.noteTenant(e)
		switch e.Op {
		case object.Synced:
		case object.Put:
			w.putGuarded(e.Object, touched)
		case object.Delete:
			if !w.meshStands(e.ID) {
				w.remove(e, touched)
			}
		case object.Broken:
			w.broken(e)
		case object.Forget:
			w.forget(e.ID.Origin, touched)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(touched), object.ID.Compare) {
		w.yielder.Yield()
		w.normalise(id)
	}
	w.podsAt.all = nil
	w.applyBudgets()
}

func (w *inventory) put(o *object.Object, touched map[object.ID]bool) {
	e := w.entryOf(o.ID)
	e.setObject(o)
	w.touchOther(o.ID, touched)
	switch {
	case own(o.ID):
		w.putOwn(e, touched)
	case !normal.Served(o): // its problem says so, and what was good of it stands
		touched[o.ID] = true
	case o.ID.Group == "" && o.ID.Kind == "Pod":
		pod, problems := normal.ParsePod(o)
		e.setParsing(problems)
		w.setProblems(o.ID, e, problems)
		if pod != nil && !pod.Equal(e.pod) {
			w.setPod(e, pod, touched)
			if pod.Address != "" || len(e.records) > 0 { // else it is no Workload, and was none
				touched[o.ID] = true
			}
		}
	case o.ID.Group == "" && o.ID.Kind == "Node":
		e.spoiled = false
		w.setProblems(o.ID, e, nil)
		w.setNode(o.ID, normal.ParseNode(o), touched)
	case o.ID.Group == "" && o.ID.Kind == "Namespace":
		ns, problems := normal.ParseNamespace(o)
		e.spoiled = false
		e.setParsing(problems)
		w.setProblems(o.ID, e, problems)
		if !ns.Equal(w.namespaces[o.ID]) {
			w.namespaces[o.ID] = ns
			w.touch(o.ID, touched)
		}
		if o.ID.Origin.Source() == origin.Kube && len(e.records) == 0 { // it has one, which says that it is there
			touched[o.ID] = true
		}
	case normal.IsRole(o.ID):
		role, problems := normal.ParseRole(o)
		e.spoiled = false
		w.setProblems(o.ID, e, problems)
		if role != nil && !role.Equal(w.roles[o.ID]) {
			w.roles[o.ID] = role
			w.touch(o.ID, touched)
		}
	case w.normal.IsMesh(o.ID):
		w.putMesh(e, touched)
	default:
		touched[o.ID] = true
	}
}

// setNode takes over what a Node is; nil: it has gone, or the object is none.
func (w *inventory) setNode(id object.ID, node *normal.Node, touched map[object.ID]bool) {
	before := w.nodes[id]
	if node.Equal(before) {
		return
	}
	if !node.SameGateway(before) {
		w.touch(normal.AllNodes(id.Origin), touched)
	}
	if w.nodes[id] = node; node == nil {
		delete(w.nodes, id)
	}
	w.touch(id, touched)
}

// remove takes an object away, for good; what is left of it is nothing.
func (w *inventory) remove(e object.Event, touched map[object.ID]bool) {
	if e.ID.Name == "" {
		delete(w.unreadable, e.Location)
		return
	}
	have := w.objects[e.ID]
	if have == nil {
		return
	}
	w.setRecords(have, nil, nil)
	w.setRefs(have, nil)
	w.setProblems(e.ID, have, nil)
	if have.pod != nil {
		w.setPod(have, nil, touched)
	}
	w.forgetObject(e.ID, have)
	delete(touched, e.ID)
	w.setNode(e.ID, nil, touched)
	delete(w.namespaces, e.ID)
	delete(w.roles, e.ID)
	if w.automatic[e.ID] != nil {
		w.setAutomatic(e.ID, nil, touched)
	}
	delete(w.resolved, e.ID)
	delete(w.keys, e.ID)
	w.touchName(e.ID, touched)
	w.touchOther(e.ID, touched)
	if w.normal.IsMesh(e.ID) && e.ID == w.meshID {
		w.meshMissed, w.meshUnsaid = object.ID{}, false
		if _, other := w.other(e.ID); other != nil && other.object != nil {
			w.putMesh(other, touched)
			return
		}
		w.setMesh(model.DefaultMesh().Spec, touched)
		w.setNetworks(&meshv1.MeshNetworks{}, touched)
	}
}

// broken takes note of an object that cannot be read: what was good before stands. A policy of which nothing good is
// known closes its namespace.
func (w *inventory) broken(e object.Event) {
	if e.ID.Name == "" {
		w.unreadable[e.Location] = true
		return
	}
	have := w.entryOf(e.ID)
	if have.spoiled = true; have.object == nil {
		have.name(e.ID)
	}
	if w.normal.IsMesh(e.ID) {
		w.meshID = e.ID
	}
	if w.closeUnread(e.ID, e.Location, have) {
		w.setProblems(e.ID, have, []object.Problem{{ID: e.ID, Location: e.Location, Code: problem.Unreadable, Severity: problem.Error,
			Message: "cannot be read, and no good version is known: all workloads of its namespace are closed"}})
	}
}

// closeUnread closes the namespace of a policy of which nothing good is known, and says whether it did.
func (w *inventory) closeUnread(id object.ID, location string, e *entry) bool {
	if len(e.records) > 0 {
		return false
	}
	closed := w.normal.Closed(&object.Object{ID: id, Location: location}, w.mesh.GetRootNamespace())
	if closed == nil {
		return false
	}
	e.closed = true
	w.setRecords(e, []model.Record{closed}, nil)
	return true
}

// normalise makes the records of one object again. A Delete in the same events may have taken it away.
func (w *inventory) normalise(id object.ID) {
	e := w.objects[id]
	if e == nil || e.object == nil {
		return
	}
	if w.yields(id, e) || w.normal.IsMesh(id) && normal.Served(e.object) { // which putMesh reads
		return
	}
	w.normalised++
	result := w.result(e)
	e.mesh, e.spoiled = result.UsesMesh, result.Spoiled
	w.setProblems(id, e, slices.Concat(e.few().parsing, result.Problems))
	w.setRefs(e, result.Refs)
	shareEndpoints(e.refs, result.Records)
	switch {
	case w.offer(id, e, result.Records, result.Spoiled):
	case !result.Spoiled:
		e.closed = false
		w.setRecords(e, result.Records, result.Private)
	case result.Closed != nil && (len(e.records) == 0 && len(e.few().adopted) == 0 || e.closed):
		e.closed = true
		w.setRecords(e, []model.Record{result.Closed}, nil)
	}
}

// setRecords replaces what an object's records are. Those with a private key are wanted once it is sealed.
func (w *inventory) setRecords(e *entry, records []model.Record, private model.PrivateKey) {
	w.references.replace(e.records, records)
	if w.weights != nil {
		w.weights.Replace(e.records, records)
	}
	w.noteEdits(e.records, records)
	w.clusterAddresses.services(records, 1)
	w.clusterAddresses.services(e.records, -1)
	for _, r := range e.records {
		delete(w.want, r.Meta().Key)
		delete(w.awaitingSeal, r.Meta().Key)
		w.changed[r.Meta().Key] = true
	}
	for _, key := range e.few().adopted {
		w.changed[key] = true
	}
	for _, r := range records {
		if len(private) == 0 {
			w.want[r.Meta().Key] = r
		}
		w.changed[r.Meta().Key] = true
	}
	if len(private) > 0 {
		w.awaitSeal(private, records)
	}
	e.setRecords(records, private)
}

func (w *inventory) setProblems(id object.ID, e *entry, problems []object.Problem) {
	w.faults.set(id, e, problems)
}
